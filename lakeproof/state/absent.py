"""Published tables that are in no lake: never copied, or with rows that wait for a reading of the catalog.

Held tables are in the lake, at an earlier position.

Only the lake is read: a table is published if the newest record of the catalog has it, or if the stream has sent rows of it
since that record was made.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.table_names import table_text
from lakeproof.lake.planning.entries import created_tables_to_enter
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.snapshot.folder import finished_tables
from lakeproof.state.slot import remedy_if_stuck
from lakeproof.state.source_state import SourceState


class AbsentCause(Enum):
    """The reason why a published table is in no lake."""

    NEVER_COPIED = "never copied"
    WAITS_FOR_LANDING = "waits for the landing"


@dataclass(frozen=True, slots=True)
class AbsentTable:
    """A published table that is in no lake; `is_excluded`: the configuration leaves it out, so nobody waits for it."""

    cause: AbsentCause
    reason: str
    remedy: str
    is_excluded: bool = False

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Absence:
    """The published tables that are in no lake, and the tables that enter it with the next compaction."""

    tables: Mapping[TableName, AbsentTable] = field(default_factory=dict)
    entering: tuple[TableName, ...] = ()

    @property
    def never_copied(self) -> dict[TableName, AbsentTable]:
        """Return the tables that nothing but a copy brings into the lake."""
        return {table: why for table, why in self.tables.items() if why.cause is AbsentCause.NEVER_COPIED}

    @property
    def waited_for(self) -> dict[TableName, AbsentTable]:
        """Return the tables without those that the configuration leaves out."""
        return {table: why for table, why in self.tables.items() if not why.is_excluded}


def absence(state: SourceState) -> Absence:
    """Return the tables of a source that are in no lake. Raises what a damaged lake raises.

    Nobody knows them before a landing has a record of the catalog, nor while it is in another incarnation than the lake.
    """
    chain, cut, catalog, position = state.chain, state.cut, state.catalog, state.position
    if chain is None or catalog is None or position is None or state.has_switched:
        return Absence()
    in_lake = set() if cut is None else {*cut.tables, *cut.held}
    unknown = {table.table for table in catalog.tables.values()} - in_lake
    landed = set(_landed_since(chain, catalog)) - in_lake - unknown
    tables = {table: _waits(state, "for the next reading of the catalog") for table in landed}
    created = created_tables_to_enter(chain, cut, position) if unknown else {}
    entering = []
    # A cut at the landing's end has what there was to be entered.
    is_behind = cut is None or position < chain.end
    for table in unknown & created.keys():
        if is_behind and created[table].enters_at <= chain.end:
            entering.append(table)
        else:
            tables[table] = _waits(state, f"until the landing has passed {max(created[table].enters_at, chain.end)}")
    # Each question for the selection builds it anew.
    selection = state.source.selection
    for table in _uncopied(state, chain, unknown - created.keys()):
        tables[table] = _never(state, table, is_excluded=selection.excluded(table))
    return Absence(dict(sorted(tables.items())), tuple(sorted(entering)))


def _landed_since(chain: Chain, catalog: Fingerprint) -> Iterator[TableName]:
    """Yield the tables of which rows have landed since the catalog was last read, and that it did not have."""
    since = chain.newest.catalog_lsn or chain.kept_from
    for manifest in chain.between(since, chain.end):
        for entry in manifest.schemas:
            if entry.from_lsn > since and entry.version.oid not in catalog.tables:
                yield entry.version.table


def _uncopied(state: SourceState, chain: Chain, tables: set[TableName]) -> set[TableName]:
    """Return those of `tables` of which no copy was made, nor is being made."""
    if not tables:
        # The snapshots' documents stay for good, so they are read only if it matters.
        return tables
    snapshot = state.snapshot
    underway = () if snapshot is None or snapshot.running is False else snapshot.missing
    return tables.difference(finished_tables(state.lake, chain.incarnation), underway)


def _never(state: SourceState, table: TableName, *, is_excluded: bool) -> AbsentTable:
    source = state.source.name
    command = f"lakeproof bootstrap {source} --tables {shlex.quote(table_text(table))}"
    stuck = remedy_if_stuck(state.chain)
    remedy = stuck or f"run `{command}`, which says what is in its way, or take it out of the publication"
    reason = "it is published and not in the lake, since no copy of it was made"
    return AbsentTable(AbsentCause.NEVER_COPIED, reason, remedy, is_excluded)


def _waits(state: SourceState, what: str) -> AbsentTable:
    source = state.source.name
    reason = f"it is published and not in the lake: its rows come from the stream, and it waits {what}"
    remedy = f"run `lakeproof drain {source} --once`, then compact (a drain that goes on does that)"
    return AbsentTable(AbsentCause.WAITS_FOR_LANDING, reason, remedy)
