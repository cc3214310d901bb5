"""Counts of changes by kind: the one set of counts, from a decoded batch to a cut."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

_Self = TypeVar("_Self", bound="ChangeCounts")


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of rows by operation; `unchanged` counts the rows with at least one unchanged TOAST value.

    `befores` are the rows with an update's old image: rows, but no changes.
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    befores: int = 0
    unchanged: int = 0

    def __add__(self: _Self, other: _Self) -> _Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def changes(self) -> int:
        """Inserts, updates, deletes and truncates."""
        return self.inserts + self.updates + self.deletes + self.truncates

    @property
    def rows(self) -> int:
        """All rows."""
        return self.changes + self.befores

    @property
    def inserts_only(self) -> bool:
        """True if no earlier row is touched."""
        return self.rows == self.inserts


# In the order of the fields, as the landing's manifests spell them.
COUNT_NAMES = tuple(field.name for field in fields(ChangeCounts))
