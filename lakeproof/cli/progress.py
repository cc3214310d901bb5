"""Events on stderr: on a terminal a line that updates itself, otherwise one JSON document per line.

Results do not belong here (`results`). If nobody reads the stream any more, the work goes on without it.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TextIO

from lakeproof.cli.results import printable, to_json
from lakeproof.events import Event

_CLEAR_LINE = "\r\x1b[K"
_BAR_CELLS = 20
_PROGRESS_S = 10.0


def progress(stream: TextIO) -> TerminalProgress | JsonProgress:
    """Return the form that fits `stream`."""
    return TerminalProgress(stream) if stream.isatty() else JsonProgress(stream)


class TerminalProgress:
    """Consecutive events of one kind share a line; the last of them stays.

    Any next event replaces progress (`….progress`); its `fraction` is shown as a bar.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._kind: str | None = None
        self._is_bar = False

    def __call__(self, event: Event) -> None:
        width = shutil.get_terminal_size().columns - 1
        fraction = event.fields.get("fraction")
        is_bar = _is_progress(event)
        text = f"{_bar(float(fraction)) if fraction is not None else ''}{printable(event.message)}"[:width]
        with self._lock:
            replaces = event.kind == self._kind or self._is_bar
            start = "" if self._kind is None else _CLEAR_LINE if replaces else "\n"
            self._kind, self._is_bar = event.kind, is_bar
            _write(self._stream, start + text)

    def close(self) -> None:
        """Leave the stream at the beginning of a line."""
        with self._lock:
            if self._kind is not None:
                _write(self._stream, "\n")
            self._kind = None


def _is_progress(event: Event) -> bool:
    """Return True if the next event makes this one worthless."""
    return event.kind.endswith(".progress")


def _bar(fraction: float) -> str:
    share = min(1.0, max(0.0, fraction))
    full = int(share * _BAR_CELLS)
    return f"[{'#' * full}{'.' * (_BAR_CELLS - full)}] {int(100 * share):3d} %  "


class JsonProgress:
    """One line per event: `{"at", "event", "message", "fields"}`, `at` in UTC; progress of a kind at most every 10 s."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._shown: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        document = {
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event.kind,
            "message": event.message,
            "fields": to_json(event.fields),
        }
        with self._lock:
            if _is_progress(event):
                now = self._clock()
                if now - self._shown.get(event.kind, float("-inf")) < _PROGRESS_S:
                    return
                self._shown[event.kind] = now
            _write(self._stream, json.dumps(document) + "\n")

    def close(self) -> None:
        """Do nothing: every event has ended its line."""


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # nobody reads the stream any more, or it is closed: a drain continues
        return
