"""Turns SIGINT and SIGTERM into a request to end cleanly; a second signal ends the command at once.

The clean end itself does not belong here: the code that checks the `Stop` performs it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from lakeproof.cli.results import TRY_AGAIN
from lakeproof.events import Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
# Threads that are waited for may be in the middle of anything: what they do is as safe to end as a killed process.
_END_S = 2.0


class Interruption:
    """Inside its `with` block, the first signal requests `stop` and the second raises KeyboardInterrupt.

    If the block has not ended `_END_S` seconds after that, the process ends. Does nothing outside the main thread, where
    Python takes no signal handlers.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._previous: dict[signal.Signals, Any] = {}
        self._left = threading.Event()
        self._end_others: list[Callable[[], None]] = []

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
            self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def arm(self) -> None:
        """Install the handlers; call it again after starting a Spark session, which installs its own for SIGINT."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def also_end(self, end: Callable[[], None]) -> None:
        """Call `end` at a second signal: it ends, without waiting, what this process has started."""
        self._end_others.append(end)

    def _end_at_once(self) -> None:
        for end in self._end_others:
            end()
        if not self._left.wait(_END_S):
            os.write(_STDERR, b"\nlakeproof: interrupted\n")
            os._exit(TRY_AGAIN)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        again = self._stop.requested
        # Each time: an exception raised amid a wait may have taken the word that others wait for.
        self._stop.request()
        if again:
            threading.Thread(target=self._end_at_once, name="lakeproof-end", daemon=True).start()
            raise KeyboardInterrupt
        if os.isatty(_STDERR):
            # Write to the descriptor directly: the stream may be in the middle of a write.
            os.write(_STDERR, b"\nending at the next safe point; press Ctrl-C again to end at once\n")
