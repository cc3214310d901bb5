"""Tables and views by their last proofs: never compared, or found to differ.

Proving does not belong here, nor does choosing what to prove (`lakeproof.proof.record`).
"""

from __future__ import annotations

from lakeproof.names import TableName
from lakeproof.proof.record import Proved
from lakeproof.state.source_state import SourceState


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


def differing(state: SourceState) -> dict[TableName, str]:
    """Return the tables that differed when they, or their histories, were last compared, without held ones."""
    result = {}
    for table in sorted(_live(state)):
        proof = state.proofs.tables.get(table)
        if proof is not None and proof.differed is not None:
            result[table] = f"it differed at {proof.differed.position}"
        elif proof is not None and proof.history is not None and proof.history.status == "differs":
            result[table] = f"its history differed at cut {proof.history.cut}"
    return result


def _live(state: SourceState) -> set[TableName]:
    return set() if state.cut is None else state.cut.tables.keys() - state.cut.held.keys()


def _was_compared(proof: Proved | None) -> bool:
    return proof is not None and (proof.rows is not None or proof.verified is not None or proof.differed is not None)
