"""One view brought up to its sources' cuts: full recompute, signed difference, one commit.

The definition and its checks belong to `lakeproof.views.definition`, choosing views to `lakeproof.commands.refresh`.

    desired   = the SQL over the current tables, each at its source's cut
    persisted = the view's Delta table as it is, whoever wrote it last
    commit    = desired - persisted, as multisets by the digest of exact forms

Invariant self-correcting: after a refresh the view is its query's answer, whatever was there before. Rows are told apart by
(`_lp_key`, `_lp_dup`), the digest and a number; where those are damaged (a key that is not its row's digest, one pair
twice) single rows can't be named, and the whole table is written anew in that one commit.

Idempotence: what a killed refresh has left is taken out of the view's log first
(`lakeproof.lake.delta.unnamed_commits`); what others have left is simply part of persisted. The Delta commit carries
the refresh's number, which is taken past the newest cut and past whatever else the log knows. When nothing differs
there is no Delta commit, and the cut names the version that was there. Known weakness: the cost is that of the query,
however little has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, KEY
from lakeproof.lake.delta.apply import Applied, CommitInfo, TableSpec, apply
from lakeproof.lake.delta.commit import number_of
from lakeproof.lake.delta.fsync import sync_commits
from lakeproof.lake.delta.log import NO_VERSION, newest_version, read_commit
from lakeproof.lake.delta.unnamed_commits import settle
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.view_cuts import ViewCut, newest_cut, newest_number, put_cut, view_path
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import Correction, correct
from lakeproof.lake.rows.memory import keep
from lakeproof.names import CycleNumber
from lakeproof.schema import HIDDEN_PREFIX
from lakeproof.storage.store import Store, local_folder
from lakeproof.views.definition import bind, definition_sha256, digest_of, query_errors

# As of `_lp_ord`: so many rows may one refresh bring under one digest.
_DUP_BITS = 36
_STORED = "_lp_stored"


@dataclass(frozen=True, slots=True)
class Difference:
    """What goes and what comes: rows of (`_lp_key`, `_lp_dup`), and whole rows; None where there are none.

    `wipe` says that everything goes; `found` is what both were made by, to be released when they are written.
    """

    retractions: DataFrame | None
    insertions: DataFrame | None
    retracted: int
    inserted: int
    wipe: bool = False
    found: Correction | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """The view's table at `path`, its version before, and the number of this refresh; `session` is the caller's own."""

    session: SparkSession
    view: ViewConfig
    path: str
    before: int
    number: CycleNumber


def refresh_view(
    session: SparkSession,
    store: Store,
    lake: str,
    view: ViewConfig,
    *,
    tables: Mapping[str, DataFrame],
    sources: Mapping[str, CycleNumber],
    refresh: int,
) -> ViewCut:
    """Commit the view's correction and write its cut, as one of `refresh`.

    `session` is the caller's own (`spark.newSession()`); `tables` gives a frame of it for each name in the SQL, without
    hidden columns, at the cuts `sources`. The caller holds `one_refresh`. Raises ConfigError for a definition that can't be
    computed or kept, TransientError where another process refreshes too.
    """
    sha256 = definition_sha256(view)
    path = view_path(lake, view.name)
    newest = newest_cut(store, view.name)
    durable = settle_view(session, path, view.name, newest)
    before = newest_version(path)
    target = _Target(session, view, path, before, next_number(store, path, view.name, newest, before))
    desired = keep(_desired(bind(session, view, tables)))
    try:
        with query_errors(session, view):
            difference = _difference(target, desired)
            applied = _commit(target, difference, sources)
        if difference.found is not None:
            difference.found.release()
    finally:
        desired.unpersist()
    failpoint("view.after_commit")
    sync_commits({path: durable}, local_folder(lake))
    failpoint("view.after_sync")
    cut = ViewCut(
        number=target.number,
        view=view.name,
        delta_version=applied.version,
        definition_sha256=sha256,
        sources=sources,
        inserted=difference.inserted,
        retracted=difference.retracted,
        created_at=datetime.now(timezone.utc).isoformat(),
        refresh=refresh,
    )
    put_cut(store, cut)
    return cut


def compare_view(
    session: SparkSession, lake: str, view: ViewConfig, tables: Mapping[str, DataFrame], version: int
) -> tuple[int, int]:
    """How many rows of the view's table at `version` its query does not give, and how many that it gives are lacking."""
    target = _Target(session, view, view_path(lake, view.name), version, CycleNumber(0))
    desired = keep(_desired(bind(session, view, tables)))
    try:
        with query_errors(session, view):
            found = _difference(target, desired)
        if found.found is not None:
            found.found.release()
        return found.retracted, found.inserted
    finally:
        desired.unpersist()


def app_id(view: str) -> str:
    """Under which name a view's refreshes stand in its Delta log."""
    return f"lakeproof/views/{view}"


def settle_view(session: SparkSession, path: str, view: str, cut: ViewCut | None) -> int:
    """Take out of a view's log what no cut names and others have not built on; the version that its newest `cut` names.

    A log that ends before it is that of another table: the one that the cut names was moved away.
    """
    version = NO_VERSION if cut is None or newest_version(path) < cut.delta_version else cut.delta_version
    settle(session, path, version, lambda commit: number_of(commit, app_id(view), "number") is not None)
    return version


def next_number(store: Store, path: str, view: str, cut: ViewCut | None, newest: int) -> CycleNumber:
    """Past the newest cut of any view, and past the numbers in this view's log that its newest `cut` does not name."""
    number = int(newest_number(store))
    known = NO_VERSION if cut is None else cut.delta_version
    for version in range(newest, known, -1):  # of ours, those alone that others have built on
        commit = read_commit(path, version)
        if commit is not None:
            number = max(number, commit.txns.get(app_id(view), 0))
    return CycleNumber(number + 1)


def _desired(rows: DataFrame) -> DataFrame:
    return rows.withColumn(KEY, digest_of(rows, rows.columns))


def _difference(target: _Target, desired: DataFrame) -> Difference:
    number = target.number
    if target.before == NO_VERSION:
        return Difference(None, _with_dup(desired, number), 0, desired.count())
    stored = target.session.read.format("delta").option("versionAsOf", target.before).load(target.path)
    _check_same_columns(target, desired, stored)
    persisted = stored.withColumnRenamed(KEY, _STORED).withColumn(KEY, _stored_digest(stored))
    if _is_damaged(persisted):
        return Difference(None, _with_dup(desired, number), persisted.count(), desired.count(), wipe=True)
    found = correct(desired, persisted, KEY, col(DUP))
    retracted, inserted = found.retractions.count(), found.insertions.count()
    return Difference(
        found.retractions.select(KEY, DUP) if retracted else None,
        _with_dup(found.insertions, number) if inserted else None,
        retracted,
        inserted,
        found=found,
    )


def _commit(target: _Target, difference: Difference, sources: Mapping[str, CycleNumber]) -> Applied:
    nothing = difference.retractions is None and difference.insertions is None and not difference.wipe
    if nothing and target.before != NO_VERSION:
        return Applied(target.before, 0, 0)
    name = target.view.name
    metadata = json.dumps({"view": name, "number": target.number, "sources": dict(sources)}, sort_keys=True)
    return apply(
        target.session,
        target.path,
        (KEY, DUP),
        difference.retractions,
        difference.insertions,
        CommitInfo(app_id(name), int(target.number), metadata),
        wipe=difference.wipe,
        create=TableSpec(),
        expected_version=target.before,
    )


def _with_dup(rows: DataFrame, number: CycleNumber) -> DataFrame:
    """Numbers that grow from refresh to refresh, so that a new row never has an old one's."""
    order = Window.partitionBy(KEY).orderBy(F.lit(0))
    return rows.withColumn(DUP, F.lit(int(number) << _DUP_BITS) + F.row_number().over(order))


def _stored_digest(stored: DataFrame) -> Column:
    return digest_of(stored, [c for c in stored.columns if not c.startswith(HIDDEN_PREFIX)])


def _is_damaged(persisted: DataFrame) -> bool:
    """Whether rows can't be named by (`_lp_key`, `_lp_dup`)."""
    wrong = F.sum(F.when(col(_STORED).eqNullSafe(col(KEY)), 0).otherwise(1))
    by_key = persisted.groupBy(KEY).agg(wrong.alias("wrong"), F.count("*").alias("n"), F.countDistinct(DUP).alias("d"))
    return not by_key.where("wrong > 0 OR n <> d").isEmpty()


def _check_same_columns(target: _Target, desired: DataFrame, stored: DataFrame) -> None:
    now = {f.name: f.dataType.simpleString() for f in desired.schema.fields} | {DUP: "bigint"}
    then = {f.name: f.dataType.simpleString() for f in stored.schema.fields}
    if now != then:
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        raise ConfigError(
            f"view {target.view.name}",
            f"its query gives other columns than its table has: {', '.join(changed)}",
            f"give the view another name, or move {target.path} away",
        )


def view_row_bytes(view: ViewConfig, cuts: Mapping[str, Cut]) -> int:
    """What a row of the view is taken to have at most: one row of each table that it reads."""
    there = (cuts[source].tables.get(table) for source, table in view.reads.values() if source in cuts)
    return sum(at.row_bytes for at in there if at is not None)
