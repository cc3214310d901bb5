"""Turns SIGINT and SIGTERM into a request to end cleanly; a second signal ends the command at once.

The clean end itself does not belong here: the code that checks the `Stop` performs it.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from lakeproof.events import Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2


class Interruption:
    """Inside its `with` block, the first signal requests `stop` and the second raises KeyboardInterrupt.

    Does nothing outside the main thread, where Python takes no signal handlers.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
            self.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def arm(self) -> None:
        """Install the handlers; call it again after starting a Spark session, which installs its own for SIGINT."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._stop.requested:
            raise KeyboardInterrupt
        self._stop.request()
        if os.isatty(_STDERR):
            # Write to the descriptor directly: the stream may be in the middle of a write.
            os.write(_STDERR, b"\nending at the next safe point; press Ctrl-C again to end at once\n")
