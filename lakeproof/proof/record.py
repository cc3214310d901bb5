"""The last proof of each table, kept in the lake, and the choice of tables for a scheduled proof.

Proving belongs to `lakeproof.commands.prove`; scheduling proofs to Dagster. The record is only shown and used for
scheduling. It never affects data, so a damaged one is treated as missing.

A table's basis is what it was when it was equal: a commit's digest names a version, as long as the log is what its commits
say. A checkpoint stands for the commits below it, and is believed by whoever reads the log. So current's digest has the
version's files in it: those of now, with the commits since taken back, must be the files that were proven.

Tables that were never proved are chosen at once, so the first proof covers all. Then small tables are chosen every time, and
large tables in turn, the longest ago first: as many as fit, at least one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field

from lakeproof.errors import LakeError, TransientError
from lakeproof.field_types import Count, IncarnationField, LsnField, TableField
from lakeproof.lake.delta.log.commits import commit_name, digest_of_bytes
from lakeproof.lake.delta.log.state import FileKey, file_key, read_state
from lakeproof.lake.records.documents import CutTable
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.result import Kind, ProofReport, Status
from lakeproof.storage.document import Document, Part, TimeField
from lakeproof.storage.folder import Folder
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError, refuse_if_locked
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class Basis(Part):
    """A table as it was proven: two Delta versions with the digests of their commits, its schema, its catalog's digest.

    `current_commit` is that of the commit and the files of the version.
    """

    current_version: Count
    current_commit: str
    history_version: Count
    history_commit: str
    schema_id: str
    catalog: str

    @classmethod
    def of(cls, lake: SourceLake, table: TableName, cut_table: CutTable, catalog: str) -> Basis | None:
        """Return the basis of a table at a cut; None if a commit is not in its log any more."""
        path = lake.url(lake.paths.current(table))
        try:
            files = map(file_key, read_state(path, cut_table.current_version).files.values())
        except LakeError:
            return None
        current = version_digest(path, cut_table.current_version, files)
        history = commit_digest(lake.url(lake.paths.history(table)), cut_table.history_version)
        if current is None or history is None:
            return None
        versions = cut_table.current_version, current, cut_table.history_version, history
        return cls(*versions, cut_table.version.id, catalog)


def commit_digest(path: str, version: int) -> str | None:
    """Return the digest of a version's commit, None if the log does not have it."""
    try:
        return digest_of_bytes(Folder.at(path).get(commit_name(version)))
    except NotFoundError:
        return None


def version_digest(path: str, version: int, files: Iterable[FileKey]) -> str | None:
    """Return the digest of a version's commit and of its files, None if the log does not have the commit."""
    commit = commit_digest(path, version)
    return None if commit is None else digest_of_bytes(repr((commit, sorted(files))).encode())


# A table with at most this share of the rows that a scheduled proof may read is chosen every time.
SMALL_SHARE = 0.05
# Documents call it `at`.
_Time = Annotated[TimeField, Field(alias="at")]
_COMPARED: tuple[Status, ...] = ("equal", "differs", "not applicable")


@dataclass(frozen=True, slots=True)
class Compared(Part):
    """A position at which a table was compared, when, and by which kind of proof."""

    incarnation: IncarnationField
    position: LsnField
    time: _Time
    kind: Kind = "whole"


@dataclass(frozen=True, slots=True)
class LakeProved(Part):
    """The last result for a table's history, or for a view, at the cut `cut` (0 for a view); `by` is the process.

    `positions`: where the sources stood, by name; none if nothing was compared. `differed_at`: the time when it last
    differed, unless it was equal since. `rows` of a history, None of a view.
    """

    status: str
    time: _Time
    cut: Count = 0
    positions: Mapping[str, LsnField] = field(default_factory=dict)
    reason: str | None = None
    differed_at: TimeField | None = None
    rows: Count | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Proved(Part):
    """A table's last proof: status, time, number of source rows (None: it was not compared), reason, and its process (`by`).

    The time is empty if its history alone was ever proved.

    `verified`: the last comparison in which it was equal; `differed`: the last in which it differed, unless a later one was
    equal. `whole`: the last time when all of its rows were compared. `basis`: what it was when it was equal last; None if it
    was not equal since. `history`: the last result for its history. `left_out`: columns that are not published, and so not
    compared.
    """

    status: str
    time: Annotated[TimeField | Literal[""], Field(alias="at")]
    rows: Count | None
    verified: Compared | None
    reason: str | None = None
    history: LakeProved | None = None
    left_out: tuple[str, ...] = ()
    differed: Compared | None = None
    by: str = ""
    whole: Compared | None = None
    basis: Basis | None = None


@dataclass(frozen=True, slots=True)
class ProofRecord(Document):
    """The last results of a source: of its tables, and of the views that read it."""

    FORMAT = "lakeproof.proved/1"

    tables: Mapping[TableField, Proved] = field(default_factory=dict)
    views: Mapping[str, LakeProved] = field(default_factory=dict)


_PROVES = "another process proves or maintains it"
# Others wait for a proof of changes so long, and look so often.
_PATIENCE_S, _LOOK_S = 120.0, 0.2
# The entry of a table of which only the history was checked.
_NEVER = Proved("blocked", "", None, None, "it was never compared")


def read_record(lake: SourceLake) -> ProofRecord:
    """Return the last results of a source; none if none is recorded, or the record can't be read."""
    try:
        return ProofRecord.read(lake.store, lake.paths.proof_record) or ProofRecord()
    except LakeError:
        return ProofRecord()


@contextmanager
def one_proof(lake: SourceLake, *, of_changes: bool = False) -> Iterator[None]:
    """Keep other proofs of the source, and its maintenance, out; raises TransientError if one is running.

    A proof of changes comes often and soon ends, so others wait for it, and it for nobody.
    """
    with ExitStack() as held:
        if of_changes:
            shown = lake.store.share_lock(lake.paths.changes_lock, _LOOK_S)
            if shown is not None:
                held.callback(shown.release)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                held.enter_context(lake.store.lock(lake.paths.proof_lock, lake.source, _PROVES))
                break
            except TransientError:
                if of_changes or time.monotonic() > deadline or not lake.store.is_locked(lake.paths.changes_lock):
                    raise
            time.sleep(_LOOK_S)
        yield


def check_free_to_prove(lake: SourceLake) -> None:
    """Raise TransientError as `one_proof` would by now: before a run begins that would only have to wait."""
    if not lake.store.is_locked(lake.paths.changes_lock):
        refuse_if_locked(lake.store, lake.paths.proof_lock, lake.source, _PROVES)


def record(
    lake: SourceLake, incarnation: Incarnation, report: ProofReport, bases: Mapping[TableName, Basis] | None = None
) -> None:
    """Add a proof to the record, with what each equal table was. Call it in `one_proof`: the record is read and replaced.

    A table that a proof of changes has left to a whole one keeps what is recorded: its age says so.
    """
    now, by = now_text(), f"process {os.getpid()} on {socket.gethostname()}"
    last_record = read_record(lake)
    tables, views = dict(last_record.tables), dict(last_record.views)
    for table, proof in report.tables.items():
        before = tables.get(table, _NEVER)
        left_out = tuple(column.name for column in proof.left_out)
        # Of a paused table, or one that has left, no row was read.
        unread = proof.status == "not applicable" and proof.source_rows is None
        if unread or proof.status not in _COMPARED or report.position is None:
            if proof.kind == "whole" or table not in tables:
                result = replace(before, status=proof.status, time=now, rows=None, reason=proof.reason, by=by)
                tables[table] = replace(result, left_out=left_out)
            continue
        here = Compared(incarnation, report.position, now, proof.kind)
        tables[table] = Proved(
            proof.status,
            now,
            proof.source_rows,
            here if proof.status == "equal" else before.verified,
            proof.reason,
            before.history,
            left_out,
            here if proof.status == "differs" else None,
            by,
            here if proof.kind == "whole" else before.whole,
            None if bases is None or proof.status != "equal" else bases.get(table),
        )
    if report.lake is not None:
        for table, checked in report.lake.histories.items():
            where = {report.source: report.lake.position}
            history = LakeProved(checked.status, now, report.lake.cut, where, checked.reason, rows=checked.rows, by=by)
            tables[table] = replace(tables.get(table, replace(_NEVER, time=now)), history=history)
        for name, view in report.lake.views.items():
            last = views[name].differed_at if name in views and view.status == "blocked" else None
            differed = now if view.status == "differs" else last
            views[name] = LakeProved(view.status, now, 0, view.positions, view.reason, differed, by=by)
    lake.store.put(lake.paths.proof_record, ProofRecord(tables, views).to_bytes())


def histories_due(rows: Mapping[TableName, int], proved: Mapping[TableName, Proved], rows_max: int) -> list[TableName]:
    """Return the tables whose history a proof checks: those checked longest ago, of about `rows_max` rows, at least one."""
    last = {t: p.history.time for t, p in proved.items() if p.history is not None}
    return _fitting(sorted(rows, key=lambda t: (last.get(t, ""), t)), rows, rows_max)


def views_due(views: Sequence[str], proved: Mapping[str, LakeProved]) -> list[str]:
    """Return the view that a proof checks: the one that was checked longest ago."""
    return sorted(views, key=lambda v: (proved[v].time if v in proved else "", v))[:1]


def due_tables(
    tables: Sequence[TableName],
    proved: Mapping[TableName, Proved],
    rows_max: int,
    doubted: Collection[TableName] = (),
) -> list[TableName]:
    """Return those of `tables` that a scheduled proof of about `rows_max` rows compares, in their order.

    Each that was not compared by the last proof is among them, and each that is `doubted`.
    """
    chosen = {t for t in tables if t not in proved or proved[t].rows is None or t in doubted}
    sizes = {t: proved[t].rows or 0 for t in tables if t not in chosen}
    chosen |= {t for t, rows in sizes.items() if rows <= rows_max * SMALL_SHARE}
    room = rows_max - sum(sizes.get(t, 0) for t in chosen)
    large = sorted((t for t in tables if t not in chosen), key=lambda t: (_compared_whole(proved[t]), t))
    chosen |= set(_fitting(large, sizes, room))
    return [t for t in tables if t in chosen]


def _fitting(tables: Sequence[TableName], rows: Mapping[TableName, int], room: int) -> list[TableName]:
    """Return the first of the tables: as many as have at most so many rows together, at least one."""
    sums = accumulate(rows[table] for table in tables)
    return [
        table for number, (table, so_far) in enumerate(zip(tables, sums, strict=True)) if not number or so_far <= room
    ]


def _compared_whole(proved: Proved) -> str:
    """Return when all rows of a table were compared last."""
    return "" if proved.whole is None else proved.whole.time
