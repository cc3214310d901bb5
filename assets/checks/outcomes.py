"""The result of a proof for each table, history and view, as the plain values that assets and checks show.

Comparing does not belong here (`lakeproof.commands.prove`), nor Dagster's objects (`assets.checks.proof`).

A target that this run did not compare keeps the result of its last comparison: if it differed then, it still counts as
wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from assets.support import metadata as md
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.record import Compared, LakeProved, Proved
from lakeproof.proof.result import ProofReport, TableRepair
from lakeproof.schema import describe_left_out
from lakeproof.storage.times import time_of

_COMPARED = ("equal", "differs", "damaged", "not applicable")
_WRONG = ("differs", "damaged")
UNREACHED = "the proof ended before its turn"


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
        _compared("differed", differed, "differed_at_lsn"),
        _cut(report),
        md.optional(
            source_rows=proof.source_rows if proof else None,
            lake_rows=proof.lake_rows if proof else None,
            differing_buckets=proof.differing_buckets if proof and compared else None,
            left_out=describe_left_out(proof.left_out) if proof and proof.left_out else None,
            outside=", ".join(map(str, proof.outside)) if proof and proof.outside else None,
            reason=reason,
        ),
        _repair(proof.repair if proof else None),
    )
    if reason is None and proof is not None and proof.status == "equal":
        reason = f"{proof.source_rows:,} rows equal at {report.position}"
    if differed is not None and not compared:
        reason = f"{reason or status}; at {differed.position} ({differed.time}) it differed"
    wrong = status in _WRONG or (not compared and differed is not None)
    return ProofOutcome(status, wrong, reason, metadata, report.position if compared else None)


def _repair(repair: TableRepair | None) -> md.Metadata:
    """Return how the table was repaired before it was compared."""
    if repair is None:
        return {}
    return md.optional(
        repaired="by keys" if repair.how == "keys" else "whole",
        repaired_keys=repair.keys,
        repaired_rows_read=repair.rows_read,
        repaired_whole_because=repair.reason,
    )


def history_outcome(table: TableName, report: ProofReport, proved: Proved | None, unreached: str) -> ProofOutcome:
    """Return the outcome on a table's history."""
    proof = report.lake.histories.get(table) if report.lake else None
    if proof is not None:
        metadata = md.merged(
            {"status": proof.status, "rows": proof.rows}, _cut(report), md.optional(reason=proof.reason)
        )
        intact = f"its {proof.rows:,} rows are those that cycles wrote" if proof.status == "equal" else None
        return ProofOutcome(proof.status, proof.status in _WRONG, proof.reason or intact, metadata)
    last = proved.history if proved else None
    since = last.time if last is not None and last.status in _WRONG else None
    return _unreached(unreached, since)


def view_outcome(view: str, report: ProofReport, proved: LakeProved | None, unreached: str) -> ProofOutcome:
    """Return the outcome on a view."""
    proof = report.lake.views.get(view) if report.lake else None
    if proof is not None and proof.status in _COMPARED:
        metadata = md.merged({"status": proof.status}, md.optional(reason=proof.reason))
        equal = "it has the rows that its query returns" if proof.status == "equal" else None
        return ProofOutcome(proof.status, proof.status in _WRONG, proof.reason or equal, metadata)
    return _unreached((proof and proof.reason) or unreached, proved.differed_at if proved else None)


def _unreached(reason: str, differed_at: str | None) -> ProofOutcome:
    description = reason if differed_at is None else f"{reason}; at {differed_at} it differed"
    metadata = md.merged(
        {"status": "blocked", "reason": reason},
        md.times(differed_at=None if differed_at is None else time_of(differed_at)),
    )
    return ProofOutcome("blocked", differed_at is not None, description, metadata)


def _compared(name: str, last: Compared | None, lsn: str) -> md.Metadata:
    if last is None:
        return {}
    return md.merged(md.lsns(**{lsn: last.position}), md.times(**{f"{name}_at": time_of(last.time)}))


def _cut(report: ProofReport) -> md.Metadata:
    return md.optional(cut=report.lake.cut if report.lake else None)
