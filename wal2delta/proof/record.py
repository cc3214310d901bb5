"""What was proved last of each table, kept in the lake, and which tables a scheduled proof takes.

Proving belongs to `wal2delta.pipeline.prove`; when a scheduled proof runs, to Dagster. The record is told to people and
spreads the work; what the lake holds is never decided by it, so a damaged one counts as none.

Tables that were never proved are taken at once, so the first proof is of all. Then small tables are taken every time, and
of the large ones those that were proved longest ago, as many as there is room for, one at least: each has its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wal2delta.errors import LakeError
from wal2delta.lake.fields import Fields, read_document, write_document
from wal2delta.landing.fields import now_text
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import NotFoundError, Store
from wal2delta.lsn import Lsn
from wal2delta.names import Incarnation, TableName
from wal2delta.proof.result import ProofReport, Status

FORMAT = "wal2delta.proved/1"
# A table of at most this share of the rows that a scheduled proof may read is taken every time.
SMALL_SHARE = 0.05
_COMPARED: tuple[Status, ...] = ("equal", "differs", "not applicable")


@dataclass(frozen=True, slots=True)
class Verified:
    """The last position at which the table was equal."""

    incarnation: Incarnation
    position: Lsn
    at: str


@dataclass(frozen=True, slots=True)
class Proved:
    """A table's last proof: what it said, when, of how many source rows (None: it was not compared)."""

    status: str
    at: str
    rows: int | None
    verified: Verified | None


def read_proved(store: Store, paths: LakePaths) -> dict[TableName, Proved]:
    """Each table's last proof; empty where none is recorded, or the record can't be read."""
    try:
        found = read_document(store.get(paths.proved), FORMAT, paths.url(paths.proved))
        return {table: _from_fields(f) for table, f in found.tables("tables").items()}
    except (NotFoundError, LakeError):
        return {}


def record(store: Store, paths: LakePaths, incarnation: Incarnation, report: ProofReport) -> None:
    """Add a proof to the record. To be called under the source's lease: it is read and replaced."""
    now = now_text()
    tables = read_proved(store, paths)
    for table, proof in report.tables.items():
        before = tables.get(table)
        verified = None if before is None else before.verified
        if proof.status == "equal" and report.position is not None:
            verified = Verified(incarnation, report.position, now)
        rows = proof.source_rows if proof.status in _COMPARED else None
        tables[table] = Proved(proof.status, now, rows, verified)
    store.put(paths.proved, write_document(FORMAT, tables={t.key: _to_json(p) for t, p in tables.items()}))


def due(tables: Sequence[TableName], proved: Mapping[TableName, Proved], rows_max: int) -> list[TableName]:
    """Those of `tables` that a scheduled proof of about `rows_max` rows takes, in their order."""
    chosen = {t for t in tables if t not in proved or proved[t].rows is None}
    sizes = {t: proved[t].rows or 0 for t in tables if t not in chosen}
    chosen |= {t for t, rows in sizes.items() if rows <= rows_max * SMALL_SHARE}
    room = rows_max - sum(sizes.get(t, 0) for t in chosen)
    large = sorted((t for t in tables if t not in chosen), key=lambda t: (proved[t].at, t))
    for number, table in enumerate(large):
        room -= sizes[table]
        if number and room < 0:
            break
        chosen.add(table)
    return [t for t in tables if t in chosen]


def _to_json(proved: Proved) -> dict[str, object]:
    verified = None
    if proved.verified is not None:
        of = proved.verified
        verified = {"incarnation": int(of.incarnation), "position": str(of.position), "at": of.at}
    return {"status": proved.status, "at": proved.at, "rows": proved.rows, "verified": verified}


def _from_fields(f: Fields) -> Proved:
    def verified() -> Verified:
        of = f.object("verified")
        return Verified(Incarnation(of.count("incarnation")), of.lsn("position"), of.text("at"))

    return Proved(
        f.text("status"),
        f.text("at"),
        f.optional("rows", lambda: f.count("rows")),
        f.optional("verified", verified),
    )
