"""The result of a proof: one status per table, the counts of both sides, and the keys that differ.

Proving belongs to `lakeproof.commands.prove`; `docs/proof.md` explains what a status does and does not mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import LeftOutColumn

if TYPE_CHECKING:
    # These modules load Spark, which `status` and the record of proofs do not need.
    from lakeproof.proof.compare import DifferingKey
    from lakeproof.proof.lake.history import HistoryProof
    from lakeproof.views.audit import ViewProof

# A table was not compared if it is `held` (the lake keeps an earlier state until someone follows the reason's remedy),
# `missing` (the lake does not have it) or `blocked` (by something that passes). `not applicable`: the sides differ, and may
# do so, since the publication does not send all of the table's changes, or the source has dropped the table and the
# configuration does not name it.
Status: TypeAlias = Literal["equal", "differs", "held", "missing", "blocked", "not applicable"]
# `whole`: every row was compared; `changed`: those under the keys that were touched since the proof before.
Kind: TypeAlias = Literal["whole", "changed"]
_UNPROVEN: tuple[Status, ...] = ("differs", "held", "missing", "blocked")


@dataclass(frozen=True, slots=True)
class TableRepair:
    """The way in which a table that differed was repaired: by `keys`, their number, or `whole`, with the reason.

    With `none`, `reason` says why it could not be copied. `rows_read` are rows of the source: those that it has under the
    keys, or all; None if they were not read.
    """

    how: Literal["keys", "whole", "none"]
    keys: int | None = None
    rows_read: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TableProof:
    """The result for one table, with a `reason` unless it is `equal`.

    `source_rows` and `lake_rows` are None if that side was not read; `differing_buckets` counts buckets, `differing_keys`
    names keys of some of them (at most `compare.KEYS_MAX`). `left_out` are columns that are not published, and so not
    compared, `outside` are its partitions that send nothing, whose rows neither side of the comparison has. `repair` says
    how the table was repaired before it was compared, None if it was not. `by_spark` says why Spark has read the lake's
    side, None if the proving process has. Of the `kind` `changed`, the rows are those that the lake's log counts, and no
    bucket was compared; `keys` is the number of keys that were.
    """

    status: Status
    source_rows: int | None = None
    lake_rows: int | None = None
    differing_buckets: int = 0
    differing_keys: tuple[DifferingKey, ...] = ()
    reason: str | None = None
    left_out: tuple[LeftOutColumn, ...] = ()
    outside: tuple[TableName, ...] = ()
    repair: TableRepair | None = None
    by_spark: str | None = None
    kind: Kind = "whole"
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class LakeProof:
    """The histories and views that were checked; the histories at the cut `cut`, which stands at `position`."""

    cut: int
    position: Lsn
    histories: Mapping[TableName, HistoryProof]
    views: Mapping[str, ViewProof]


@dataclass(frozen=True, slots=True)
class ProofReport:
    """All tables at one `position`, None if there was none; `lake` is None if the proof did not get that far."""

    source: str
    position: Lsn | None
    tables: Mapping[TableName, TableProof]
    lake: LakeProof | None = None

    def with_status(self, status: Status) -> list[TableName]:
        """Return the tables with this status, in order."""
        return sorted(table for table, proof in self.tables.items() if proof.status == status)

    @property
    def equal(self) -> bool:
        """True if every table was compared, none differs, and nothing in the lake is damaged."""
        compared = bool(self.tables) and not any(proof.status in _UNPROVEN for proof in self.tables.values())
        return compared and not self.damaged

    @property
    def damaged(self) -> dict[str, str]:
        """The histories and views that are damaged, with the reasons."""
        if self.lake is None:
            return {}
        histories = {f"history of {t}": p.reason or "" for t, p in self.lake.histories.items() if p.status != "equal"}
        views = {f"view {v}": p.reason or "" for v, p in self.lake.views.items() if p.status == "differs"}
        return histories | views


def compared(table: TableName, proof: TableProof, position: Lsn, number: str) -> Event:
    """Return the event of a table's comparison at `position`; `number` is its place among the others, in words."""
    reason = f": {proof.reason}" if proof.reason else ""
    return Event(
        "prove.table",
        f"{number} compared: {table} {proof.status}{reason}",
        {
            "table": table.key,
            "status": proof.status,
            "source_rows": proof.source_rows,
            "lake_rows": proof.lake_rows,
            "differing_buckets": proof.differing_buckets,
            "position": str(position),
            "left_out": [column.name for column in proof.left_out],
            "outside": [table.key for table in proof.outside],
            "by_spark": proof.by_spark,
            "kind": proof.kind,
            "keys": proof.keys,
        },
    )
