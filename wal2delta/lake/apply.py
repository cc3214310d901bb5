"""The apply contract: a table, the rows that go and the rows that come → exactly one Delta commit, once.

What goes and comes belongs to `net_change`, `correction` and the views; when it is written to `cycle`.

Four makes of the one commit, the cheapest that is right: create (the first rows and the table's properties together),
append (nothing goes), overwrite (everything goes), and a MERGE that deletes and inserts:

    source = deletes (key, true) ∪ images (row, false)
    ON s.delete AND t.key = s.key [AND t.key BETWEEN literals]   WHEN MATCHED DELETE
    WHEN NOT MATCHED AND NOT s.delete                            INSERT

An update is a delete and an insert of one commit: so the target is read for its key columns alone (3.4 s where the textbook
MERGE takes 6.3 s, 10 k changes in 10 M rows). Delta prunes a MERGE's target by literals only, hence the bounds.

Invariant idempotent-apply: the commit carries (application id, number); before writing, the commit after the expected
version is looked at, and a number that is there already is not written again. Delta itself would skip a repeat in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from wal2delta.errors import InvariantError, LakeError
from wal2delta.lake.columns import needs_mapping
from wal2delta.lake.delta_log import NO_VERSION, Commit, newest_version, read_commit
from wal2delta.lake.exact import quoted

_DELETE = "_w2d_delete"
_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# A commit's checkpoint costs as much as five small commits; one in 10 is Delta's default.
CHECKPOINT_INTERVAL = 50


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What a commit says of itself. `may_be_done`: an earlier attempt at this number may have made it already."""

    app_id: str
    number: int
    user_metadata: str
    may_be_done: bool = False


@dataclass(frozen=True, slots=True)
class TableSpec:
    """How a table is made: Delta properties beside the ones that every table has."""

    properties: Mapping[str, str] = field(default_factory=dict)

    def options(self, columns: Sequence[str]) -> dict[str, str]:
        """The writer's options; deletion vectors spare rewriting rows that do not change."""
        mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(columns) else {}
        return {
            "delta.enableDeletionVectors": "true",
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            **mapping,
            **self.properties,
        }


@dataclass(frozen=True, slots=True)
class Applied:
    """The table's version now, rows inserted and deleted by this commit; `skipped`: it had been made before.

    Where nothing went or came there is no commit: the version is the old one.
    """

    version: int
    inserted: int
    deleted: int
    skipped: bool = False


def apply(  # noqa: PLR0917  the contract's order: where, what goes, what comes, as which commit
    session: SparkSession,
    path: str,
    key_columns: Sequence[str],
    deletes: DataFrame | None,
    images: DataFrame | None,
    commit: CommitInfo,
    *,
    wipe: bool = False,
    create: TableSpec | None = None,
    bounds: tuple[int, int] | None = None,
    null_safe: bool = False,
    few: bool = False,
    expected_version: int | None = None,
) -> Applied:
    """Commit once: rows whose `key_columns` are in `deletes` go (all, if `wipe`), then `images` come.

    `session` must be the caller's own (`spark.newSession()`): its settings carry the transaction while a MERGE runs.
    `images` has all the table's columns; `create` makes the table where there is none; `bounds` are the least and greatest
    value of a single integer key; `null_safe` makes NULL a key like others; `few` says that what goes and comes fits into
    the memory of each task. `expected_version` is the version the table should have (found out when None); a commit after
    it that is not ours raises LakeError, one that is ours and not expected InvariantError.
    """
    before = newest_version(path) if expected_version is None else expected_version
    done = _done(path, before, commit, known=expected_version is not None)
    if done is not None:
        return done
    if before == NO_VERSION:
        if create is None or images is None:
            raise LakeError(path, "there is no Delta table", "restore it, or bootstrap the table again")
        _append(images, path, commit, create.options(images.columns))
    elif wipe:
        rows = session.read.format("delta").load(path).limit(0) if images is None else images
        _writer(rows, commit).mode("overwrite").save(path)
    elif deletes is not None:
        _merge(
            session,
            path,
            key_columns,
            deletes=deletes,
            images=images,
            commit=commit,
            bounds=bounds,
            null_safe=null_safe,
            few=few,
        )
    elif images is not None:
        _append(images, path, commit, {})
    else:
        return Applied(before, 0, 0)
    return _outcome(path, before, commit)


def append(
    session: SparkSession,
    path: str,
    rows: DataFrame,
    commit: CommitInfo,
    *,
    create: TableSpec | None = None,
    expected_version: int | None = None,
) -> Applied:
    """Commit once: `rows` come."""
    return apply(session, path, (), None, rows, commit, create=create, expected_version=expected_version)


def _append(rows: DataFrame, path: str, commit: CommitInfo, options: Mapping[str, str]) -> None:
    _writer(rows, commit).options(**options).mode("append").save(path)


def _writer(rows: DataFrame, commit: CommitInfo) -> DataFrameWriter:
    return (
        rows.write.format("delta")
        .option("txnAppId", commit.app_id)
        .option("txnVersion", commit.number)
        .option("userMetadata", commit.user_metadata)
    )


def _merge(
    session: SparkSession,
    path: str,
    key: Sequence[str],
    *,
    deletes: DataFrame,
    images: DataFrame | None,
    commit: CommitInfo,
    bounds: tuple[int, int] | None,
    null_safe: bool,
    few: bool,
) -> None:
    source = deletes.withColumn(_DELETE, F.lit(True))
    if images is not None:
        coming = images.withColumn(_DELETE, F.lit(False))
        source = source.unionByName(coming, allowMissingColumns=True)
    equal = "<=>" if null_safe else "="
    condition = [f"s.{_DELETE}", *(f"t.{quoted(k)} {equal} s.{quoted(k)}" for k in key)]
    if bounds is not None and len(key) == 1:
        condition.append(f"t.{quoted(key[0])} BETWEEN {bounds[0]} AND {bounds[1]}")
    if few:
        # Delta materialises the source and forgets its size; the target's keys would be shuffled to meet it.
        source = F.broadcast(source)
    merge = DeltaTable.forPath(session, path).alias("t").merge(source.alias("s"), " AND ".join(condition))
    merge = merge.whenMatchedDelete()
    if images is not None:
        values: dict[str, str | Column] = {quoted(c): f"s.{quoted(c)}" for c in images.columns}
        merge = merge.whenNotMatchedInsert(condition=f"NOT s.{_DELETE}", values=values)
    with _transaction(session, commit):
        merge.execute()


@contextmanager
def _transaction(session: SparkSession, commit: CommitInfo) -> Iterator[None]:
    """MERGE takes its transaction from the session's settings; any other write in it would be tagged or skipped."""
    settings = {_TXN_APP: commit.app_id, _TXN_VERSION: str(commit.number), _METADATA: commit.user_metadata}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def _done(path: str, before: int, commit: CommitInfo, *, known: bool) -> Applied | None:
    """What an earlier attempt committed; None where there was none."""
    found = read_commit(path, before + 1) if known else read_commit(path, before)
    if found is None or (not known and found.txns.get(commit.app_id) != commit.number):
        return None
    if found.txns.get(commit.app_id) != commit.number:
        raise LakeError(
            path,
            f"version {found.version} was committed by someone else",
            "let nothing but wal2delta write this table, and begin the source's lake again (docs/operations.md)",
        )
    if not commit.may_be_done:
        raise InvariantError(path, f"cycle {commit.number} is in version {found.version} already", "report this")
    return _applied(found, skipped=True)


def _outcome(path: str, before: int, commit: CommitInfo) -> Applied:
    made = read_commit(path, before + 1)
    if made is None:
        # A MERGE that found nothing to delete or insert makes no commit.
        return Applied(before, 0, 0)
    if made.txns.get(commit.app_id) != commit.number:
        raise InvariantError(path, f"version {made.version} is not the commit of cycle {commit.number}", "report this")
    return _applied(made, skipped=False)


def _applied(commit: Commit, *, skipped: bool) -> Applied:
    inserted = commit.metric("numTargetRowsInserted", "numOutputRows")
    return Applied(commit.version, inserted, commit.metric("numTargetRowsDeleted"), skipped)
