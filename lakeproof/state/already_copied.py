"""The tables that a copy would only make again: they are in the lake, or copied and about to enter it.

Copying does not belong here (`bootstrap`), nor the copies that are due (`due_copies`). Only the lake is read, no server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakeproof.config.model import Config
from lakeproof.lake.planning.forecast import will_be_held
from lakeproof.lake.records.documents import CutTable
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import FinishedCopy, finished_tables, missing_tables
from lakeproof.state.source_state import SourceState


@dataclass(frozen=True, slots=True)
class Copied:
    """A table's newest copy: its point, and its rows, bytes and chunks, None if the copy's documents were removed."""

    consistent_point: Lsn
    rows: int | None = None
    bytes: int | None = None
    chunks: int | None = None


def already_copied(config: Config, name: str, tables: Collection[TableName]) -> dict[TableName, Copied]:
    """Return those of `tables` that wait for no copy, each with its newest one. Raises what a damaged lake raises.

    A table waits for one if it was never copied, is held or will be by the next compaction, is paused or being resumed, or
    if a copy of it was asked for and has not come to its end.
    """
    state = SourceState.of(config, name)
    chain, cut = state.chain, state.cut
    if chain is None:
        return {}
    finished = finished_tables(state.lake, chain.incarnation)
    waiting = {*state.paused, *missing_tables(state.lake, chain.incarnation, finished)}
    in_lake: Mapping[TableName, CutTable] = {}
    if cut is not None and not state.has_switched:
        in_lake = cut.tables
        waiting |= {*cut.held, *will_be_held(chain, cut)}
    return {
        table: _copied(finished.get(table), in_lake.get(table))
        for table in tables
        if table not in waiting and (table in finished or table in in_lake)
    }


def _copied(copy: FinishedCopy | None, cut_table: CutTable | None) -> Copied:
    if copy is not None:
        chunks = copy.table.chunks
        return Copied(copy.consistent_point, copy.table.rows, sum(chunk.bytes for chunk in chunks), len(chunks))
    return Copied(Lsn.ZERO if cut_table is None else cut_table.snapshot_lsn)
