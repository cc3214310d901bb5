"""Cycles that bring no changes: files put together, old changes out of history, current made from history again.

Which table needs which belongs to `wal2delta.pipeline.maintain`; cycles with changes to `cycle`; removing files to
`delta_files`. The steps and their order are those of any cycle: intent, one commit per table, sync, cut.

    maintenance  small files put together (`optimize`); or history's rows up to a cut become the rows as they were at it
    repair       current becomes what history adds up to, by correction

A commit is found again by its cycle's number: OPTIMIZE carries it in `userMetadata` alone, Delta gives it no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from wal2delta.errors import LakeError, TableError
from wal2delta.failpoints import failpoint
from wal2delta.lake.apply import apply, tagged
from wal2delta.lake.columns import (
    DUP,
    KEY,
    LSN,
    OP,
    ORD,
    col,
    current_columns,
    has_old_rows,
    history_columns,
    in_lake,
    merge_key,
    pick,
    row_key,
)
from wal2delta.lake.contract import Applied, CommitInfo, commit_of_cycle
from wal2delta.lake.delta_log import find_commit
from wal2delta.lake.documents import Cut, CutTable, Held, HistoryLow, Intent, TableIntent
from wal2delta.lake.durable import sync_tables
from wal2delta.lake.lease import Lease
from wal2delta.lake.open import read_layer
from wal2delta.lake.optimize import put_together
from wal2delta.lake.plan import ORDINAL_BITS
from wal2delta.lake.records import write_cut, write_intent
from wal2delta.lake.replay import added_up, after_truncates, replayed, with_keys
from wal2delta.lake.strays import stray_commits_hold
from wal2delta.landing.fields import now_text, time_of
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.lsn import Lsn
from wal2delta.names import CycleNumber, TableName
from wal2delta.schema import SchemaVersion

# The kinds of these cycles.
UPKEEP = ("maintenance", "repair")
_DIGEST, _SIGN = "_w2d_digest", "_w2d_sign"


def begin_upkeep(lease: Lease, cut: Cut, kind: str, tables: Mapping[TableName, TableIntent]) -> tuple[Intent, str]:
    """Step 1: put the intent of a cycle at the cut's own position; it and its SHA-256."""
    lease.check()
    intent = Intent(
        number=CycleNumber(cut.number + 1),
        kind=kind,
        incarnation=cut.incarnation,
        start_lsn=cut.position,
        end_lsn=cut.position,
        segments=(),
        tables=tables,
        held=cut.held,
        epoch=lease.epoch,
        writer=lease.writer,
        created_at=now_text(),
    )
    sha256 = write_intent(lease.store, lease.paths, intent)
    failpoint("upkeep.after_intent")
    return intent, sha256


def finish_upkeep(
    spark: SparkSession,
    lease: Lease,
    *,
    intent: Intent,
    sha256: str,
    previous: Cut,
    archive: Path | None,
    between: Callable[[], None] = lambda: None,
) -> tuple[Cut, Mapping[TableName, Held]]:
    """The other steps, whoever began them: the cut, and the tables in which nothing could be done, with the reason.

    Commits of an earlier attempt are found and not made again.

    `archive` is where rows are written before they leave history, and restored from; `between` is called before each
    table, and may end the work there by raising.
    """
    tables, refused = dict(previous.tables), dict[TableName, Held]()
    for name, wanted in intent.tables.items():
        between()
        upkeep = _Upkeep(spark.newSession(), lease, intent, name, tables[name], archive)
        try:
            with stray_commits_hold(lease.paths, name):
                tables[name] = upkeep.run(wanted)
        except TableError as error:
            found = Held(tables[name].at_lsn, error.reason, error.remedy)
            refused[name] = found.named(lease.paths.source, name)
    failpoint("upkeep.after_tables")
    paths = lease.paths
    places = [Path(paths.url(key)) for t in intent.tables for key in (paths.history(t), paths.current(t))]
    since = time_of(intent.created_at).timestamp()
    sync_tables(places, Path(paths.url(paths.source)).parent, since)
    lease.check()
    cut = replace(
        previous,
        number=intent.number,
        kind=intent.kind,
        tables=tables,
        held={**refused, **previous.held},
        intent_sha256=sha256,
        created_at=now_text(),
    )
    write_cut(lease.store, paths, cut)
    failpoint("upkeep.after_cut")
    return cut, refused


@dataclass(frozen=True, slots=True)
class _Upkeep:
    """One table in one such cycle; `session` is its own."""

    session: SparkSession
    lease: Lease
    intent: Intent
    name: TableName
    at: CutTable
    archive: Path | None

    @property
    def shape(self) -> SchemaVersion:
        return in_lake(self.at.version)

    def run(self, wanted: TableIntent) -> CutTable:
        self._check_ours()
        if self.intent.kind == "repair":
            return replace(self.at, current_version=self._rebuilt().version)
        if wanted.history_through is not None:
            return self._trimmed(wanted.history_through) if wanted.history_through else self._restored()
        paths = self.lease.paths
        history = self._optimized(paths.history(self.name), self.at.history_version, order=ORD)
        failpoint("upkeep.after_history")
        current = self._optimized(paths.current(self.name), self.at.current_version)
        return replace(self.at, history_version=history, current_version=current)

    def _check_ours(self) -> None:
        """Raise StrayCommitError where someone else has written one of both tables, before either is touched."""
        paths, told = self.lease.paths, self._commit("").user_metadata
        self._found(paths.url(paths.history(self.name)), self.at.history_version, told)
        self._found(paths.url(paths.current(self.name)), self.at.current_version, told)

    def _commit(self, layer: str) -> CommitInfo:
        return commit_of_cycle(self.lease.paths.source, self.intent, layer, self.name, may_be_done=True)

    def _optimized(self, key: str, expected: int, order: str | None = None) -> int:
        path, told = self.lease.paths.url(key), self._commit("").user_metadata
        if not self._found(path, expected, told)[1]:
            self.lease.check()
            put_together(self.session, path, told, order)
        return self._found(path, expected, told)[0]

    def _found(self, path: str, expected: int, told: str) -> tuple[int, bool]:
        """The version of the cycle's commit, else the newest; whether it is there. What changes no data is passed over."""
        version, found = find_commit(path, expected, lambda commit: commit.user_metadata == told)
        return (version, False) if found is None else (found.version, True)

    def _trimmed(self, through: CycleNumber) -> CutTable:
        """History's rows up to cut `through`: those that were the table's rows then stay as they are, the others go."""
        path = self.lease.paths.url(self.lease.paths.history(self.name))
        commit = self._commit("history")
        bound = (through + 1) << ORDINAL_BITS
        if not self._found(path, self.at.history_version, commit.user_metadata)[1]:
            old = self._before(self.at.history_version, bound)
            kept = rows_of_state(self.shape, old)
            if self.archive is not None:
                self._archived(old.join(kept.select(ORD), ORD, "left_anti"), self.archive)
                failpoint("upkeep.after_archive")
            self.lease.check()
            tagged(kept, commit).mode("overwrite").option("replaceWhere", f"{ORD} < {bound}").save(path)
            failpoint("upkeep.after_trim")
        version, _ = self._found(path, self.at.history_version, commit.user_metadata)
        # The last change up to there: from its position on history is whole. It may have left with an earlier trim.
        last = self._before(self.at.history_version, bound).agg(F.max(LSN)).collect()[0][0]
        known = Lsn.ZERO if self.at.history_low is None else self.at.history_low.at_lsn
        at_lsn = known if last is None else max(known, Lsn(int(last)))
        before = self.at.history_low is None or self.at.history_low.archived
        low = HistoryLow(through, at_lsn, archived=before and self._is_archived())
        return replace(self.at, history_version=version, history_low=low)

    def _is_archived(self) -> bool:
        """Whether this cycle wrote what it takes away; asked of the folder, since an earlier attempt may have made it."""
        if self.archive is None:
            return False
        return (archive_of(self.archive, self.lease.paths, self.name) / f"{self.intent.number:012d}").exists()

    def _before(self, version: int, bound: int) -> DataFrame:
        at = replace(self.at, history_version=version)
        return read_layer(self.session, self.lease.paths, self.name, at, "history").where(F.col(ORD) < bound)

    def _archived(self, rows: DataFrame, folder: Path) -> None:
        place = archive_of(folder, self.lease.paths, self.name) / f"{self.intent.number:012d}"
        pick(rows, history_columns(self.shape)).write.mode("overwrite").parquet(str(place))
        sync_tables([place], folder, 0.0)

    def _restored(self) -> CutTable:
        """History with what the archive has of it: rows that are there are not brought again."""
        path = self.lease.paths.url(self.lease.paths.history(self.name))
        commit = self._commit("history")
        place = archived(self.archive, self.lease.paths, self.name)
        if not self._found(path, self.at.history_version, commit.user_metadata)[1]:
            there = read_layer(self.session, self.lease.paths, self.name, self.at, "history")
            folders = sorted(str(part) for part in place.iterdir())
            rows = self.session.read.schema(there.schema).parquet(*folders).dropDuplicates([ORD])
            self.lease.check()
            tagged(rows.join(there.select(ORD), ORD, "left_anti").select(there.columns), commit).mode("append").save(
                path
            )
        version, _ = self._found(path, self.at.history_version, commit.user_metadata)
        low = self.at.history_low
        return replace(self.at, history_version=version, history_low=None if low is None or low.archived else low)

    def _rebuilt(self) -> Applied:
        """Current as history adds it up: the keys whose rows differ go and come whole, in one commit."""
        paths, shape = self.lease.paths, self.shape
        history = read_layer(self.session, paths, self.name, self.at, "history")
        desired = replayed(self.session, shape, history).withColumn(_DIGEST, row_key(shape))
        persisted = read_layer(self.session, paths, self.name, self.at).withColumn(_DIGEST, row_key(shape))
        sides = desired.select(_DIGEST, F.lit(1).alias(_SIGN)).unionAll(persisted.select(_DIGEST, F.lit(-1)))
        net = sides.groupBy(_DIGEST).agg(F.sum(_SIGN).alias(_SIGN)).where(F.col(_SIGN) != 0).select(_DIGEST)
        key = (KEY,) if shape.is_bag else merge_key(shape)
        both = pick(persisted.join(net, _DIGEST, "left_semi"), key).unionAll(
            pick(desired.join(net, _DIGEST, "left_semi"), key)
        )
        differing = both.distinct().persist()
        try:
            if differing.isEmpty():
                return Applied(self.at.current_version, 0, 0)
            self.lease.check()
            return apply(
                self.session,
                paths.url(paths.current(self.name)),
                merge_key(shape),
                pick(with_keys(persisted, differing, key), merge_key(shape)).distinct(),
                pick(with_keys(desired, differing, key), current_columns(shape)),
                self._commit("current"),
                null_safe=True,
                expected_version=self.at.current_version,
            )
        finally:
            differing.unpersist()


def archive_of(folder: Path, paths: LakePaths, table: TableName) -> Path:
    """Where an archive has what left a table's history: a folder for each cycle that took something."""
    return folder / paths.history(table)


def archived(folder: Path | None, paths: LakePaths, table: TableName) -> Path:
    """The same; raises LakeError where there is nothing."""
    place = None if folder is None else archive_of(folder, paths, table)
    if place is None or not place.is_dir():
        raise LakeError(
            f"{paths.source}: {table}",
            f"the archive has nothing of it ({place})",
            "set `retention.archive` to the folder that it was archived in",
        )
    return place


def rows_of_state(shape: SchemaVersion, history: DataFrame) -> DataFrame:
    """The rows of history (its columns) that are the table's rows after them, each with its own place and time."""
    return pick(history.join(_alive(shape, history), ORD, "left_semi"), history_columns(shape))


def _alive(shape: SchemaVersion, history: DataFrame) -> DataFrame:
    """The `_w2d_ord` of those rows."""
    if shape.is_bag:
        # A copy in a bag has the ordinal of the row that brought it.
        net = added_up(shape, history, None)
        return history.select(ORD).limit(0) if net.images is None else net.images.select(F.col(DUP).alias(ORD))
    events = after_truncates(history)
    if has_old_rows(shape):
        # A key may be unique only at commit: not the newest row of a key decides, but the one that is left.
        net = added_up(shape, history, None)
        newest = net.checked[0]
        return newest.where(F.col("_w2d_image").isNotNull()).select(F.col("_w2d_image").alias(ORD))
    newest_first = Window.partitionBy(*(col(k) for k in merge_key(shape))).orderBy(F.col(ORD).desc())
    ranked = events.withColumn("_w2d_rank", F.row_number().over(newest_first)).where(F.col("_w2d_rank") == 1)
    return ranked.where(F.col(OP).isin("insert", "update")).select(ORD)
