"""The documents of one source's lake, each read once, with its own error.

Conclusions from the documents are in the modules beside this one, which take a `SourceState`.

A reading that failed raises its error at each use: whatever needs no damaged document can be known all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import LakeproofError
from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.record import ProofRecord, read_record
from lakeproof.snapshot.folder import FinishedCopy
from lakeproof.snapshot.paused import PausedTable, read_paused
from lakeproof.snapshot.progress import SnapshotStatus, snapshot_status
from lakeproof.storage.source_lake import SourceLake

_T = TypeVar("_T")


class _Once(Generic[_T]):
    """A reading that is made when it is first asked for, and never again."""

    def __init__(self, read: Callable[[SourceState], _T]) -> None:
        self._read, self._name = read, read.__name__
        self.__doc__ = read.__doc__

    @overload
    def __get__(self, state: None, _: type[SourceState]) -> _Once[_T]: ...

    @overload
    def __get__(self, state: SourceState, _: type[SourceState]) -> _T: ...

    def __get__(self, state: SourceState | None, _: type[SourceState]) -> _T | _Once[_T]:
        return self if state is None else self(state)

    def __call__(self, state: SourceState) -> _T:
        if self._name not in state.readings:
            try:
                state.readings[self._name] = self._read(state)
            except LakeproofError as error:
                state.readings[self._name] = error
        value: Any = state.readings[self._name]
        if isinstance(value, LakeproofError):
            raise value
        result: _T = value
        return result


@dataclass(frozen=True, slots=True)
class SourceState:
    """One source as its configuration and its lake have it; `readings` are those made so far, or made by the caller."""

    lake: SourceLake
    source: SourceConfig
    readings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, name: str) -> SourceState:
        """Return the state of the source `name`; raises ConfigError as `Config.source` and `SourceLake.open`."""
        source = config.source(name)
        return cls(SourceLake.open(config.location, source.name), source)

    @_Once
    def chain(self) -> Chain | None:
        """The newest incarnation's chain."""
        return Chain.open_newest(self.lake)

    @_Once
    def cut(self) -> Cut | None:
        """The newest cut."""
        return newest_cut(self.lake)

    @_Once
    def catalog(self) -> Fingerprint | None:
        """The newest record of the source's catalog."""
        return None if self.chain is None else newest_catalog(self.chain)

    @_Once
    def pending(self) -> Mapping[TableName, FinishedCopy]:
        """The finished copies that have not entered the lake."""
        return {} if self.chain is None else pending_snapshots(self.lake, self.chain.incarnation, self.cut)

    @property
    def ahead(self) -> dict[TableName, str]:
        """The tables whose copy is ahead of the landing, each with a sentence: no compaction takes it before a drain."""
        if self.chain is None:
            return {}
        name, end = self.lake.source, self.chain.end
        points = {table: copy.consistent_point for table, copy in self.pending.items()}
        return {table: copy_ahead(name, point, end) for table, point in points.items() if point > end}

    @_Once
    def snapshot(self) -> SnapshotStatus | None:
        """The newest snapshot, if it runs or has left tables."""
        if self.chain is None:
            return None
        locked = self.lake.store.is_locked(self.lake.paths.snapshot_lock)
        return snapshot_status(self.chain, locked=locked)

    @_Once
    def paused(self) -> Mapping[TableName, PausedTable]:
        """The tables that a person has paused."""
        return read_paused(self.lake)

    @_Once
    def proofs(self) -> ProofRecord:
        """The last proofs."""
        return read_record(self.lake)

    @property
    def has_switched(self) -> bool:
        """True if the landing is one of another incarnation than the newest cut: positions can't be compared."""
        return self.chain is not None and self.cut is not None and self.cut.incarnation != self.chain.incarnation

    @_Once
    def position(self) -> Lsn | None:
        """The lake's position in the chain; its start if nothing of the chain is in the lake."""
        if self.chain is None:
            return None
        return self.chain.head.end_lsn if self.cut is None or self.has_switched else self.cut.position


def copy_ahead(source: str, point: Lsn, end: Lsn) -> str:
    """Return why a copy at a point has not entered a lake whose landing ends before it, and what brings it there."""
    return (
        f"its copy at {point} enters once the landing, which ends at {end}, has come there: run `lakeproof drain {source}"
        f" --once`, then `lakeproof compact {source}` (a drain and a compaction that go on do that)"
    )
