"""Problems: what is wrong, or could not be read, so that the rest of a state can be shown all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lakeproof.errors import LakeproofError, TransientError

_S = TypeVar("_S")
_T = TypeVar("_T")
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, or could not be read; `transient` if trying again may help."""

    thing: str
    reason: str
    remedy: str
    transient: bool

    def __str__(self) -> str:
        return f"{self.thing}: {self.reason}; {self.remedy}"

    @classmethod
    def of(cls, error: LakeproofError) -> Problem:
        """Return the problem that an error reports."""
        return cls(error.thing, error.reason, error.remedy, isinstance(error, TransientError))


@dataclass(slots=True)
class Problems:
    """Reads, and collects the errors that they end with, each once."""

    listed: list[Problem] = field(default_factory=list)

    def add(self, *problems: Problem) -> None:
        """Add problems that are not listed yet."""
        self.listed += [problem for problem in problems if problem not in self.listed]

    def read(self, read: Callable[[_S], _T], of: _S, otherwise: _D) -> _T | _D:
        """Return what `read` finds in `of`; if it ends with an error, list that and return `otherwise`."""
        try:
            return read(of)
        except LakeproofError as error:
            self.add(Problem.of(error))
            return otherwise
