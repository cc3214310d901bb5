"""The tables of a source that a person has paused, with what their publications had of them.

A table is in the record before it leaves a publication, and until its new copy is complete: so a killed command leaves
either a table that is still followed, or one that the record names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from lakeproof.failpoints import failpoint
from lakeproof.field_types import TableField
from lakeproof.names import TableName
from lakeproof.storage.document import Document, Part
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import LockHandle


@dataclass(frozen=True, slots=True)
class PausedEntry(Part):
    """A table's line in a publication as it was: the condition in PostgreSQL's words, and the columns; null: all."""

    publication: str
    rows: str | None
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class PausedTable(Part):
    """A paused table: since when, and where it was published. `resuming`: it is to be published and copied again."""

    since: str
    entries: tuple[PausedEntry, ...]
    resuming: bool = False


@dataclass(frozen=True, slots=True)
class Paused(Document):
    """All paused tables of a source."""

    FORMAT = "lakeproof.paused/1"

    tables: Mapping[TableField, PausedTable] = field(default_factory=dict)


def read_paused(lake: SourceLake) -> dict[TableName, PausedTable]:
    """Return the paused tables; raises LakeError if the record is damaged."""
    record = Paused.read(lake.store, lake.paths.paused)
    return {} if record is None else dict(record.tables)


def add_paused(lake: SourceLake, tables: Mapping[TableName, PausedTable]) -> None:
    """Add tables to the record; one that is there keeps what is known of it, and is not resuming any more.

    This and what follows raises TransientError while another command writes the record.
    """
    with _locked(lake):
        before = read_paused(lake)
        kept = {table: replace(before[table], resuming=False) for table in tables if table in before}
        _write(lake, {**before, **tables, **kept})


def set_resuming(lake: SourceLake, tables: Iterable[TableName]) -> None:
    """Note that these paused tables are to be published and copied again."""
    with _locked(lake):
        before = read_paused(lake)
        _write(lake, before | {table: replace(before[table], resuming=True) for table in tables if table in before})


def end_resuming(lake: SourceLake, tables: Iterable[TableName]) -> None:
    """Take tables that are resuming out of the record: they are copied again. One that was paused anew stays."""
    copied = set(tables)
    if not any(paused.resuming for table, paused in read_paused(lake).items() if table in copied):
        return
    failpoint("resume.after_copy")
    with _locked(lake):
        before = read_paused(lake)
        _write(lake, {t: paused for t, paused in before.items() if not (paused.resuming and t in copied)})


def _locked(lake: SourceLake) -> AbstractContextManager[LockHandle]:
    """Keep others from writing the record between a reading and what is written for it."""
    thing, reason = f"paused tables of {lake.source}", "another command is writing the record of them"
    return lake.store.lock(lake.paths.paused_lock, thing, reason)


def _write(lake: SourceLake, tables: Mapping[TableName, PausedTable]) -> None:
    lake.store.put(lake.paths.paused, Paused(dict(sorted(tables.items()))).to_bytes())
