"""What a proof says: one status per table, the counts of both sides, and the keys that differ.

How it comes about belongs to `lakeproof.commands.prove`; `docs/proof.md` says what a status does and does not mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.compare import DifferingKey
from lakeproof.proof.history import HistoryProof
from lakeproof.schema import LeftOutColumn
from lakeproof.views.audit import ViewProof

# Nothing was compared where a table is `held` (the lake has it as it was before, and stays there until someone does what
# the reason says), `missing` (the lake has it not at all) or `blocked` (by something that passes). `not applicable`: the
# sides differ, as they may, since the publication does not send all of the table's changes, or the source has dropped the
# table, and the configuration does not name it.
Status: TypeAlias = Literal["equal", "differs", "held", "missing", "blocked", "not applicable"]
_UNPROVEN: tuple[Status, ...] = ("differs", "held", "missing", "blocked")


@dataclass(frozen=True, slots=True)
class TableProof:
    """One table. `reason` says why, where the status is not `equal`.

    `source_rows` and `lake_rows` are None where that side was not read; `differing_buckets` counts buckets,
    `differing_keys` names keys of some of them (at most `compare.KEYS_MAX`). `left_out` are the table's columns that are
    not published, so that nothing was said of them.
    """

    status: Status
    source_rows: int | None = None
    lake_rows: int | None = None
    differing_buckets: int = 0
    differing_keys: tuple[DifferingKey, ...] = ()
    reason: str | None = None
    left_out: tuple[LeftOutColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeProof:
    """The histories and views that had their turn, at the cut `cut`."""

    cut: int
    histories: Mapping[TableName, HistoryProof]
    views: Mapping[str, ViewProof]


@dataclass(frozen=True, slots=True)
class ProofReport:
    """All tables at one `position`, None where no position was to be had; `lake` is None where that was not come to."""

    source: str
    position: Lsn | None
    tables: Mapping[TableName, TableProof]
    lake: LakeProof | None = None

    def with_status(self, status: Status) -> list[TableName]:
        """The tables of this status, in order."""
        return sorted(table for table, proof in self.tables.items() if proof.status == status)

    @property
    def equal(self) -> bool:
        """Whether every table was compared and none differs, and nothing of the lake was found damaged."""
        compared = bool(self.tables) and not any(proof.status in _UNPROVEN for proof in self.tables.values())
        return compared and not self.damaged

    @property
    def damaged(self) -> dict[str, str]:
        """The histories and views that are not what they have to be, with the reasons."""
        if self.lake is None:
            return {}
        histories = {f"history of {t}": p.reason or "" for t, p in self.lake.histories.items() if p.status != "equal"}
        views = {f"view {v}": p.reason or "" for v, p in self.lake.views.items() if p.status == "differs"}
        return histories | views
