"""Turns SIGINT and SIGTERM into a request to end cleanly; a second signal ends the command at once.

The clean end itself does not belong here: the code that checks the `Stop` performs it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from lakeproof.cli.results import TRY_AGAIN
from lakeproof.events import Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
# Threads that are waited for may be in the middle of anything: what they do is as safe to end as a killed process.
_END_S = 2.0
# How often the main thread is woken for its exception.
_AGAIN_S = 0.05


class Interruption:
    """Inside its `with` block, the first signal requests `stop` and the second raises KeyboardInterrupt.

    If the block has not ended `_END_S` seconds after that, the process ends. A thread of its own counts the signals, and
    nobody else: the main thread runs a handler only between two of its steps, and a signal that comes as it begins to wait
    would be seen when the wait is over. After the second one it wakes the main thread for the exception. Does nothing
    outside the main thread, where Python takes no signal handlers.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._raises = False
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_pipe, self._pipe = -1, -1
        self._left, self._leaving = threading.Event(), threading.Lock()
        self._end_others: list[Callable[[], None]] = []

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
            numbers, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            self._previous_pipe = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
            threading.Thread(target=self._follow, args=(numbers,), name="lakeproof-signals", daemon=True).start()
            self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if not self._previous:
            return
        with self._leaving:
            for number, handler in self._previous.items():
                signal.signal(number, handler)
        self._previous = {}
        signal.set_wakeup_fd(self._previous_pipe)
        os.close(self._pipe)

    def arm(self) -> None:
        """Install the handlers; call it again after starting a Spark session, which installs its own for SIGINT."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def also_end(self, end: Callable[[], None]) -> None:
        """Call `end` at a second signal: it ends, without waiting, what this process has started."""
        self._end_others.append(end)

    def _follow(self, numbers: int) -> None:
        """Count the signals, whose numbers come through a pipe until its other end is closed."""
        count = 0
        while number := os.read(numbers, 1):
            if number[0] not in _SIGNALS:
                continue
            count += 1
            # Again at the second one: an exception raised amid a wait may take the word that others wait for.
            self._stop.request()
            if count == 1 and os.isatty(_STDERR):
                _say(b"\nending at the next safe point; press Ctrl-C again to end at once\n")
            if count == 2:
                self._end_at_once()
        os.close(numbers)

    def _end_at_once(self) -> None:
        for end in self._end_others:
            end()
        self._raises, deadline = True, time.monotonic() + _END_S
        while not self._left.wait(_AGAIN_S):
            if time.monotonic() > deadline:
                _say(b"\nlakeproof: interrupted\n")
                os._exit(TRY_AGAIN)
            with self._leaving:
                # Again and again, since each may come just as the main thread begins to wait.
                if self._raises and not self._left.is_set():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._raises and not self._left.is_set():
            self._raises = False
            raise KeyboardInterrupt


def _say(text: bytes) -> None:
    """Write to the descriptor directly, as the stream may be in the middle of a write; its reader may have gone."""
    with suppress(OSError):
        os.write(_STDERR, text)
