"""A thread that works beside a follower's cycles while a block runs, and whose error the follower raises.

Its work is given by `views` and `proofs`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Worker(ABC):
    """Runs `_work` in a thread while the block runs; the block ends when that has returned, as `_ended` asks it to."""

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error that has ended the thread: the driver's end, or one that is not the engine's own."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  the follower's thread raises it
            self._error = error

    @abstractmethod
    def _work(self) -> None:
        """Work until `_ended` is set."""
