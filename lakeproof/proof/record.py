"""What was proved last of each table, kept in the lake, and which tables a scheduled proof takes.

Proving belongs to `lakeproof.commands.prove`; when a scheduled proof runs, to Dagster. The record is told to people and
spreads the work; what the lake holds is never decided by it, so a damaged one counts as none.

Tables that were never proved are taken at once, so the first proof is of all. Then small tables are taken every time, and
of the large ones those that were proved longest ago, as many as there is room for, one at least: each has its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakeproof.errors import LakeError
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.result import ProofReport, Status
from lakeproof.storage.document_fields import Fields, read_document, write_document
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError, Store

FORMAT = "lakeproof.proved/1"
# A table of at most this share of the rows that a scheduled proof may read is taken every time.
SMALL_SHARE = 0.05
_COMPARED: tuple[Status, ...] = ("equal", "differs", "not applicable")


@dataclass(frozen=True, slots=True)
class Compared:
    """A position at which a table was compared, and when."""

    incarnation: Incarnation
    position: Lsn
    at: str


@dataclass(frozen=True, slots=True)
class LakeProved:
    """What was said last of a table's history, or of a view; `cut` is where it was looked at (0 for a view).

    `differed_at` is when it was found to differ last, if nothing found it equal since.
    """

    status: str
    at: str
    cut: int = 0
    reason: str | None = None
    differed_at: str | None = None

    def to_json(self) -> dict[str, object]:
        """An object of the record."""
        return {
            "status": self.status,
            "at": self.at,
            "cut": self.cut,
            "reason": self.reason,
            "differed_at": self.differed_at,
        }

    @classmethod
    def from_fields(cls, f: Fields) -> LakeProved:
        """The inverse."""
        reason = f.optional("reason", lambda: f.text("reason"))
        differed_at = f.optional("differed_at", lambda: f.text("differed_at"))
        return cls(f.text("status"), f.text("at"), f.count("cut"), reason, differed_at)


@dataclass(frozen=True, slots=True)
class Proved:
    """A table's last proof: what it said, when, of how many source rows (None: it was not compared), and why.

    `verified` is where it was equal last, `differed` where it differed last, if no comparison has found otherwise since.
    `history` is what was said last of its history, `left_out` names the columns that are not published, and so not compared.
    """

    status: str
    at: str
    rows: int | None
    verified: Compared | None
    reason: str | None = None
    history: LakeProved | None = None
    left_out: tuple[str, ...] = ()
    differed: Compared | None = None


# Of a table whose history alone was looked at.
_NEVER = Proved("blocked", "", None, None, "it was never compared")


def read_proved(store: Store, paths: LakePaths) -> dict[TableName, Proved]:
    """Each table's last proof; empty where none is recorded, or the record can't be read."""
    return _read(store, paths)[0]


def read_views(store: Store, paths: LakePaths) -> dict[str, LakeProved]:
    """What was said last of each view that reads the source; empty as `read_proved`."""
    return _read(store, paths)[1]


def _read(store: Store, paths: LakePaths) -> tuple[dict[TableName, Proved], dict[str, LakeProved]]:
    try:
        found = read_document(store.get(paths.proved), FORMAT, paths.url(paths.proved))
        views = found.object("views")
        tables = {table: _from_fields(f) for table, f in found.tables("tables").items()}
        return tables, {name: LakeProved.from_fields(views.object(name)) for name in views.doc}
    except (NotFoundError, LakeError):
        return {}, {}


def record(store: Store, paths: LakePaths, incarnation: Incarnation, report: ProofReport) -> None:
    """Add a proof to the record. To be called under the source's lease: it is read and replaced."""
    now = now_text()
    tables, views = _read(store, paths)
    for table, proof in report.tables.items():
        before = tables.get(table, _NEVER)
        verified, differed = before.verified, before.differed
        if proof.status in _COMPARED and report.position is not None:
            here = Compared(incarnation, report.position, now)
            verified = here if proof.status == "equal" else verified
            differed = here if proof.status == "differs" else None
        rows = proof.source_rows if proof.status in _COMPARED else None
        left_out = tuple(column.name for column in proof.left_out)
        tables[table] = Proved(proof.status, now, rows, verified, proof.reason, before.history, left_out, differed)
    if report.lake is not None:
        for table, found in report.lake.histories.items():
            history = LakeProved(found.status, now, report.lake.cut, found.reason)
            tables[table] = replace(tables.get(table, replace(_NEVER, at=now)), history=history)
        for name, view in report.lake.views.items():
            last = views[name].differed_at if name in views and view.status == "blocked" else None
            views[name] = LakeProved(view.status, now, 0, view.reason, now if view.status == "differs" else last)
    store.put(
        paths.proved,
        write_document(
            FORMAT,
            tables={t.key: _to_json(p) for t, p in tables.items()},
            views={name: view.to_json() for name, view in views.items()},
        ),
    )


def histories_due(rows: Mapping[TableName, int], proved: Mapping[TableName, Proved], rows_max: int) -> list[TableName]:
    """Those whose history a proof takes: the ones proved longest ago first, one at least, of about `rows_max` rows."""
    last = {t: p.history.at for t, p in proved.items() if p.history is not None}
    chosen: list[TableName] = []
    room = rows_max
    for table in sorted(rows, key=lambda t: (last.get(t, ""), t)):
        room -= rows[table]
        if chosen and room < 0:
            break
        chosen.append(table)
    return chosen


def views_due(views: Sequence[str], proved: Mapping[str, LakeProved]) -> list[str]:
    """The view that a proof takes: the one that was looked at longest ago."""
    return sorted(views, key=lambda v: (proved[v].at if v in proved else "", v))[:1]


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
    def position(of: Compared | None) -> dict[str, object] | None:
        if of is None:
            return None
        return {"incarnation": int(of.incarnation), "position": str(of.position), "at": of.at}

    return {
        "status": proved.status,
        "at": proved.at,
        "rows": proved.rows,
        "verified": position(proved.verified),
        "differed": position(proved.differed),
        "reason": proved.reason,
        "history": None if proved.history is None else proved.history.to_json(),
        "left_out": list(proved.left_out),
    }


def _from_fields(f: Fields) -> Proved:
    def position(name: str) -> Compared | None:
        def read() -> Compared:
            of = f.object(name)
            return Compared(Incarnation(of.count("incarnation")), of.lsn("position"), of.text("at"))

        return f.optional(name, read)

    return Proved(
        f.text("status"),
        f.text("at"),
        f.optional("rows", lambda: f.count("rows")),
        position("verified"),
        f.optional("reason", lambda: f.text("reason")),
        f.optional("history", lambda: LakeProved.from_fields(f.object("history"))),
        tuple(map(str, f.items("left_out"))),
        position("differed"),
    )
