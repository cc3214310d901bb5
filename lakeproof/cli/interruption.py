"""SIGINT and SIGTERM as a request to end cleanly; a second one ends at once.

What ending cleanly means belongs to whoever looks at the `Stop`.
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
    """While it is entered, the first signal asks `stop` for the end and the second raises KeyboardInterrupt.

    Does nothing outside the main thread, where Python takes no signal handlers.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
            self.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def arm(self) -> None:
        """Take the signals; once more after a Spark session was made, which takes SIGINT for itself."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._stop.requested:
            raise KeyboardInterrupt
        self._stop.request()
        if os.isatty(_STDERR):
            # Straight to the descriptor: the stream may be in the middle of a write of ours.
            os.write(_STDERR, b"\nending at the next safe point; once more to end at once\n")
