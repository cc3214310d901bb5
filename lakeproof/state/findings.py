"""Checks a source against its lake: whose it is, if the slot meets the landing, and which published tables are in no lake.

Nothing of the server is read here. The single facts are in `lakeproof.state`.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakeproof.errors import ConfigError, LakeError
from lakeproof.postgres.checks.findings import Finding, error, from_error, note
from lakeproof.postgres.replication_slot import name_problem
from lakeproof.snapshot.incarnation import check_lake_is_ours
from lakeproof.state.absent import absence
from lakeproof.state.slot import ServerSeen, refuse_stuck, slot_gap
from lakeproof.state.source_state import SourceState


def lake_findings(state: SourceState, seen: ServerSeen) -> list[Finding]:
    """Return the findings about a source's lake and its server; one is that something can't be read."""
    try:
        check_lake_is_ours(state.lake, seen.server)
        refuse_stuck(state.chain, seen.slot)
        return [*_slot(state, seen), *_absent(state)]
    except (LakeError, ConfigError) as refusal:
        return [from_error(refusal)]


def _slot(state: SourceState, seen: ServerSeen) -> Iterator[Finding]:
    """Yield what makes the slot no continuation of the landing; of a lost one the server has been asked already."""
    source = state.source
    if name_problem(source.slot) is not None or (seen.slot is not None and seen.slot.lost):
        return
    if state.chain is None:
        if seen.slot is None:
            yield note(f"slot {source.slot}", "it does not exist yet", "`lakeproof bootstrap` makes it")
        return
    gap = slot_gap(source, seen, state.chain)
    if gap is not None:
        yield error(gap.thing, gap.reason, gap.remedy)


def _absent(state: SourceState) -> Iterator[Finding]:
    for table, why in absence(state).tables.items():
        finding = note if why.is_excluded else error
        yield finding(table, why.reason, why.remedy)
