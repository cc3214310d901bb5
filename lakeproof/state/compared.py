"""The tables of a source by their last proofs: never compared, differed, or widened since they were equal.

Proving does not belong here (`lakeproof.commands.prove`), nor the choice of tables for a proof (`due`).

`ALTER COLUMN … TYPE bigint` rewrites a table and keeps its values; with `USING v * 100` it writes other ones, and neither
stream nor catalog distinguishes them. So the lake widens the column, and the table counts as not compared.
"""

from __future__ import annotations

from lakeproof.catalog.differences import is_wider
from lakeproof.lake.records.cuts.documents import read_table_schema
from lakeproof.lake.records.documents import CutTable
from lakeproof.names import TableName
from lakeproof.proof.record import Basis, Proved
from lakeproof.state.source_state import SourceState
from lakeproof.storage.source_lake import SourceLake


def proved_tables(state: SourceState) -> dict[TableName, Proved]:
    """Return the last proofs without those of tables that nobody asks for any more, or that are not in the lake."""
    source, cut, proved = state.source, state.cut, state.proofs.tables
    tables = set(proved) if cut is None else {*cut.tables, *cut.held}
    selection = source.selection
    if selection:
        tables = {table for table in proved if selection.selected(table)}
    return {table: proof for table, proof in sorted(proved.items()) if table in tables}


def never_compared(state: SourceState) -> tuple[TableName, ...]:
    """Return the tables of the lake that no proof has ever compared with the source, without held ones."""
    if state.cut is None:
        return ()
    proved = state.proofs.tables
    return tuple(sorted(table for table in _live(state) if not _was_compared(proved.get(table))))


def differing_tables(state: SourceState) -> dict[TableName, str]:
    """Return the tables that differed when they, or their histories, were last compared, without held ones."""
    result = {}
    for table in sorted(_live(state)):
        proof = state.proofs.tables.get(table)
        if proof is not None and proof.differed is not None:
            result[table] = f"it differed at {proof.differed.position}"
        elif proof is not None and proof.history is not None and proof.history.status == "differs":
            result[table] = f"its history differed at cut {proof.history.cut}"
    return result


def widened_tables(state: SourceState) -> dict[TableName, tuple[str, ...]]:
    """Return the tables with columns that were widened since the table was equal to the source, without held ones.

    Raises LakeError if a schema is missing or damaged.
    """
    result = {}
    for table in sorted(_live(state)):
        proof = state.proofs.tables.get(table)
        if state.cut is not None and proof is not None and proof.basis is not None:
            result[table] = _widened_since(proof.basis, state.lake, state.cut.tables[table])
    return {table: columns for table, columns in result.items() if columns}


def _widened_since(basis: Basis, lake: SourceLake, cut_table: CutTable) -> tuple[str, ...]:
    if basis.schema_id == cut_table.version.id:
        return ()
    before = read_table_schema(lake, basis.schema_id)
    if before.oid != cut_table.version.oid:
        return ()
    had = {column.attnum: column.type_oid for column in before.columns}
    return tuple(c.name for c in cut_table.version.columns if c.attnum in had and is_wider(had[c.attnum], c.type_oid))


def _live(state: SourceState) -> set[TableName]:
    return set() if state.cut is None else state.cut.tables.keys() - state.cut.held.keys()


def _was_compared(proof: Proved | None) -> bool:
    return proof is not None and (proof.rows is not None or proof.verified is not None or proof.differed is not None)
