"""Jobs of a platform that says over HTTP what they are doing: they are asked now and then, and a failed question waits.

How a platform starts a job does not belong here (`on_kubernetes`, `on_emr_serverless`, `on_databricks`).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from lakeproof.errors import ConfigError, TransientError
from resources.compute.launchers import Ending

T = TypeVar("T")

# The messages of the command come by another way, so this decides only how soon its end is seen.
ASK_EVERY_S = 5.0
# A platform may be away for so long while a command works on, and before one has started.
PATIENCE_S = 600.0
START_PATIENCE_S = 60.0
START_AGAIN_S = 2.0
REASON_MAX = 500


class GoneError(ConfigError):
    """The platform does not know the job any more."""


@dataclass(slots=True)
class PlatformJob:
    """A job of a platform. `ask` gives its end, or None, and raises TransientError if the platform does not answer.

    `place` is what people look it up by, and `page` a URL. `cancel` may fail: it is tried again as long as the job goes on.
    """

    place: str
    ask: Callable[[], Ending | None]
    cancel: Callable[[], None]
    page: str = ""
    ask_every_s: float | None = None
    _asked_at: float = 0.0
    _answered_at: float = 0.0
    _is_to_end: bool = False

    def ended(self, wait_s: float) -> Ending | None:
        time.sleep(wait_s)
        now = time.monotonic()
        self._answered_at = self._answered_at or now
        if now - self._asked_at < (ASK_EVERY_S if self.ask_every_s is None else self.ask_every_s):
            return None
        self._asked_at = now
        if self._is_to_end:
            self.terminate()
        try:
            ending = self.ask()
        except GoneError as error:
            return killed(error.reason)
        except TransientError:
            if now - self._answered_at > PATIENCE_S:
                raise
            return None
        self._answered_at = now
        return ending

    def terminate(self) -> None:
        self._is_to_end = True
        # Whoever ends a job that is gone, or whose platform is away, has nothing better to do than to go on.
        with suppress(TransientError, ConfigError):
            self.cancel()
            self._is_to_end = False


def not_started(why: str) -> Ending:
    """Return the end of a job whose command has never run."""
    return Ending("could not start", why=why, remedy="see to what the platform says; the lake is as it was")


def killed(why: str, output: tuple[str, ...] = ()) -> Ending:
    """Return the end of a job that was ended from outside."""
    remedy = "run it again: its lease ends by itself; if its memory was not enough, give it more"
    return Ending("was killed", output, why, remedy)


def patiently(start: Callable[[], T]) -> T:
    """Return what starts a job; while the platform does not answer it is tried again, so twice must be as good as once."""
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        try:
            return start()
        except TransientError:
            if time.monotonic() > deadline:
                raise
        time.sleep(START_AGAIN_S)


def imported(module: str, extra: str) -> ModuleType:
    """Return a platform's package; raises ConfigError with what to install if it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        remedy = f"install lakeproof[{extra}] where Dagster runs"
        raise ConfigError(f"compute.{extra}", f"the package {error.name} is not installed", remedy) from None


def shown(text: object) -> str:
    """Return what a platform says in one line, cut off for an error."""
    return " ".join(str(text).split())[:REASON_MAX]
