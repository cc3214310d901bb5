"""The result of a proof for each table, history and view, as the plain values that assets and checks show.

Comparing does not belong here (`lakeproof.commands.prove`), nor Dagster's objects (`assets.checks.proof`).

A target that this run did not compare keeps the result of its last comparison: if it differed then, it still counts as
wrong. Every outcome has the time and process of the target's entry in the lake's record (`recorded_at`): by that a proof
that was made outside of Dagster is recognized, whose outcome is made of that entry (`recorded_…`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from assets.support import metadata as md
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.record import Compared, LakeProved, Proved
from lakeproof.proof.result import Kind, ProofReport, Status, TableProof, TableRepair
from lakeproof.schema import describe_left_out
from lakeproof.storage.times import time_of

_COMPARED = ("equal", "differs", "damaged", "not applicable")
_WRONG = ("differs", "damaged")
UNREACHED = "the proof ended before its turn"
RECORDED_AT = "recorded_at"


@dataclass(frozen=True, slots=True)
class ProofOutcome:
    """The result for one target. `position` is the LSN of the comparison, None if there is no single LSN or no comparison.

    `wrong` is the result of this comparison, or of the last comparison if nothing was compared now.
    """

    status: str
    wrong: bool
    reason: str | None = None
    metadata: md.Metadata = field(default_factory=dict)
    position: Lsn | None = None

    @property
    def compared(self) -> bool:
        """True if this run compared the target."""
        return self.status in _COMPARED


def table_outcome(table: TableName, report: ProofReport, proved: Proved | None, unreached: str) -> ProofOutcome:
    """Return the outcome on a current table; `proved` is the lake's record after the run."""
    proof = report.tables.get(table)
    status, reason = (proof.status, proof.reason) if proof else ("blocked", unreached)
    compared = status in _COMPARED
    verified, differed = (proved.verified, proved.differed) if proved else (None, None)
    metadata = md.merged(
        {"status": status},
        md.lsns(compared_at_lsn=report.position if compared else None),
        _compared("verified", verified, "verified_through_lsn"),
        md.optional(verified_by=verified.kind if verified else None),
        _compared("whole", proved.whole if proved else None, "whole_at_lsn"),
        _compared("differed", differed, "differed_at_lsn"),
        md.optional(
            cut=report.lake.cut if report.lake else None,
            source_rows=proof.source_rows if proof else None,
            lake_rows=proof.lake_rows if proof else None,
            differing_buckets=proof.differing_buckets if proof and compared else None,
            left_out=describe_left_out(proof.left_out) if proof and proof.left_out else None,
            outside=", ".join(map(str, proof.outside)) if proof and proof.outside else None,
            reason=reason,
        ),
        _repair(proof.repair if proof else None),
        _recorded(proved),
    )
    if reason is None and proof is not None and proof.status == "equal":
        changed = ", by what changed since the proof before" if proof.kind == "changed" else ""
        reason = f"{proof.source_rows:,} rows equal at {report.position}{changed}"
    if differed is not None and not compared:
        reason = f"{reason or status}; at {differed.position} ({differed.time}) it differed"
    wrong = status in _WRONG or (not compared and differed is not None)
    return ProofOutcome(status, wrong, reason, metadata, report.position if compared else None)


def recorded_table(source: str, table: TableName, proved: Proved) -> ProofOutcome:
    """Return the outcome of a table's last proof, by the lake's record alone."""
    here = {"equal": proved.verified, "differs": proved.differed}.get(proved.status)
    position = None if here is None else here.position
    kind: Kind = "whole" if here is None else here.kind
    proof = TableProof(cast("Status", proved.status), proved.rows, reason=proved.reason, kind=kind)
    outcome = table_outcome(table, ProofReport(source, position, {table: proof}), proved, "")
    left_out = md.optional(left_out=", ".join(proved.left_out) or None)
    return replace(outcome, metadata=md.merged(outcome.metadata, left_out))


def _repair(repair: TableRepair | None) -> md.Metadata:
    """Return how the table was repaired before it was compared."""
    if repair is None:
        return {}
    return md.optional(
        repaired={"keys": "by keys", "whole": "whole", "none": "no"}[repair.how],
        repaired_keys=repair.keys,
        repaired_rows_read=repair.rows_read,
        **{"not_repaired_because" if repair.how == "none" else "repaired_whole_because": repair.reason},
    )


def history_outcome(table: TableName, report: ProofReport, proved: Proved | None, unreached: str) -> ProofOutcome:
    """Return the outcome on a table's history."""
    lake, last = report.lake, proved.history if proved else None
    if lake is not None and (proof := lake.histories.get(table)) is not None:
        here = md.merged(md.optional(cut=lake.cut), md.lsns(compared_at_lsn=lake.position), _recorded(last))
        return _history(proof.status, proof.rows, proof.reason, here)
    since = last.time if last is not None and last.status in _WRONG else None
    return _unreached(unreached, since, last)


def recorded_history(last: LakeProved) -> ProofOutcome:
    """Return the outcome of a history's last proof, by the lake's record alone."""
    here = md.lsns(compared_at_lsn=next(iter(last.positions.values()), None))
    return _history(last.status, last.rows or 0, last.reason, md.merged({"cut": last.cut}, here, _recorded(last)))


def _history(status: str, rows: int, reason: str | None, metadata: md.Metadata) -> ProofOutcome:
    intact = f"its {rows:,} rows are those that cycles wrote" if status == "equal" else None
    metadata = md.merged({"status": status, "rows": rows}, md.optional(reason=reason), metadata)
    return ProofOutcome(status, status in _WRONG, reason or intact, metadata)


def view_outcome(view: str, report: ProofReport, proved: LakeProved | None, unreached: str) -> ProofOutcome:
    """Return the outcome on a view."""
    proof = report.lake.views.get(view) if report.lake else None
    if proof is not None and proof.status in _COMPARED:
        return _view(proof.status, proof.reason, proof.positions, proved)
    return _unreached((proof and proof.reason) or unreached, proved.differed_at if proved else None, proved)


def recorded_view(last: LakeProved) -> ProofOutcome:
    """Return the outcome of a view's last proof, by the lake's record alone."""
    if last.status in _COMPARED:
        return _view(last.status, last.reason, last.positions, last)
    return _unreached(last.reason or UNREACHED, last.differed_at, last)


def _view(status: str, reason: str | None, positions: Mapping[str, Lsn], last: LakeProved | None) -> ProofOutcome:
    equal = "it has the rows that its query returns" if status == "equal" else None
    metadata = md.merged({"status": status}, md.optional(reason=reason), _at(positions), _recorded(last))
    return ProofOutcome(status, status in _WRONG, reason or equal, metadata)


def _unreached(reason: str, differed_at: str | None, last: LakeProved | None) -> ProofOutcome:
    description = reason if differed_at is None else f"{reason}; at {differed_at} it differed"
    metadata = md.merged(
        {"status": "blocked", "reason": reason},
        md.times(differed_at=None if differed_at is None else time_of(differed_at)),
        _recorded(last),
    )
    return ProofOutcome("blocked", differed_at is not None, description, metadata)


def _recorded(last: Proved | LakeProved | None) -> md.Metadata:
    """Return when the lake's record got its entry, and by which process; nothing if there is none."""
    if last is None or not last.by:
        return {}
    return md.merged(md.times(**{RECORDED_AT: time_of(last.time)}), {"recorded_by": last.by})


def _at(positions: Mapping[str, Lsn]) -> md.Metadata:
    return md.lsns(**{f"{source}_lsn": position for source, position in positions.items()})


def _compared(name: str, last: Compared | None, lsn: str) -> md.Metadata:
    if last is None:
        return {}
    return md.merged(md.lsns(**{lsn: last.position}), md.times(**{f"{name}_at": time_of(last.time)}))
