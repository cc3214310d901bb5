"""Cycles that bring no changes: files put together, old changes out of history, current made from history again.

Which table needs which belongs to `lakeproof.commands.maintain`; cycles with changes to `cycle`; removing files to
`delta_files`. The steps and their order are those of any cycle: intent, one commit per table, sync, cut.

    maintenance  small files put together (`optimize`); or history's rows up to a cut become the rows as they were at it
    repair       current becomes what history adds up to, by correction

What an earlier attempt has left is taken out of the logs first (`unnamed`). OPTIMIZE carries the cycle's number in
`userMetadata` alone, Delta gives it no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.errors import LakeError, TableError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, KEY, LSN, OP, ORD
from lakeproof.lake.columns import current_columns, has_old_rows, history_columns, in_lake, large_columns, merge_key
from lakeproof.lake.cycle.attempts import Attempt, AttemptsError, earlier_attempts, tried
from lakeproof.lake.cycle.foreign_commits import stray_commits_hold, without_strays
from lakeproof.lake.cycle.lost_history import held_for, lost_history
from lakeproof.lake.delta.apply import apply, tagged
from lakeproof.lake.delta.commit import Applied, CommitInfo, commit_of_cycle
from lakeproof.lake.delta.fsync import sync_commits, sync_folder
from lakeproof.lake.delta.log import find_commit
from lakeproof.lake.delta.optimize import put_together
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.replay import Complete, added_up, after_truncates, replayed, with_keys
from lakeproof.lake.fold.unchanged_values import completing, has_value, holder
from lakeproof.lake.planning.ordinals import ORDINAL_BITS
from lakeproof.lake.records.documents import RESNAPSHOT, Cut, CutTable, Held, HistoryLow, Intent, TableIntent
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import write_cut, write_intent
from lakeproof.lake.rows.columns import col, pick, row_key
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths

# The kinds of these cycles.
UPKEEP = ("maintenance", "repair")
# The remedy of what was left undone in a table that is not held for it.
_LEFT = "the next run tries it again"
_DIGEST, _SIGN = "_lp_digest", "_lp_sign"


def begin_upkeep(
    lease: Lease,
    cut: Cut,
    kind: str,
    tables: Mapping[TableName, TableIntent],
    held: Mapping[TableName, Held] | None = None,
) -> tuple[Intent, str]:
    """Step 1: put the intent of a cycle at the cut's own position; it and its SHA-256. `held` are held from now on."""
    lease.check()
    intent = Intent(
        number=CycleNumber(cut.number + 1),
        kind=kind,
        incarnation=cut.incarnation,
        start_lsn=cut.position,
        end_lsn=cut.position,
        segments=(),
        tables=tables,
        held={**cut.held, **(held or {})},
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

    `archive` is where rows are written before they leave history, and restored from; `between` is called before each
    table, and may end the work there by raising.
    """
    tables, refused = dict(previous.tables), dict[TableName, Held]()
    earlier = earlier_attempts(lease, intent)
    for name, wanted in intent.tables.items():
        between()
        try:
            tables[name] = _kept_up(spark.newSession(), lease, intent, name, tables[name], wanted, archive, earlier)
        except TableError as error:
            refused[name] = held_for(error, tables[name].at_lsn).named(lease.paths.source, name)
    failpoint("upkeep.after_tables")
    paths = lease.paths
    durable = {t: previous.tables[t] for t in intent.tables if t not in refused}
    places = {paths.url(paths.history(t)): at.history_version for t, at in durable.items()}
    places |= {paths.url(paths.current(t)): at.current_version for t, at in durable.items()}
    sync_commits(places, Path(paths.url(paths.source)).parent)
    lease.check()
    cut = replace(
        previous,
        number=intent.number,
        kind=intent.kind,
        tables=tables,
        held={**{t: h for t, h in refused.items() if h.remedy != _LEFT}, **_still_held(intent, refused)},
        intent_sha256=sha256,
        created_at=now_text(),
    )
    write_cut(lease.store, paths, cut)
    failpoint("upkeep.after_cut")
    return cut, refused


def _still_held(intent: Intent, refused: Mapping[TableName, Held]) -> dict[TableName, Held]:
    """The tables that were held before the cycle, or are by its intent, with what it has found to be lost."""
    return {table: held.after(refused.get(table)) for table, held in intent.held.items()}


def _kept_up(  # noqa: PLR0917  as `_Upkeep`, and what there was of attempts
    session: SparkSession,
    lease: Lease,
    intent: Intent,
    name: TableName,
    at: CutTable,
    wanted: TableIntent,
    archive: Path | None,
    earlier: Mapping[TableName, Sequence[Attempt]],
) -> CutTable:
    """One table; raises TableError when nothing can be done in it."""
    fit(session, at.row_bytes)

    def once(*, anew: bool) -> CutTable:
        with stray_commits_hold(lease.paths, name):
            settled = without_strays(session, lease, intent, name, at, take_back=False) or at
            return _Upkeep(session, lease, intent, name, settled, archive, anew=anew).run(wanted)

    try:
        return tried(session, lease, intent, name, earlier.get(name, ()), once)
    except AttemptsError as error:
        # What can't be read is copied again; whatever else went wrong, the table is as it was, and readable.
        if error.unreadable is None:
            raise TableError(str(name), error.reason, _LEFT) from error
        lost = lost_history(lease.paths, name, error.unreadable)
        raise lost or TableError(str(name), error.reason, RESNAPSHOT) from error


@dataclass(frozen=True, slots=True)
class _Upkeep:
    """One table in one such cycle; `session` is its own. `anew`: what is read of current can't be."""

    session: SparkSession
    lease: Lease
    intent: Intent
    name: TableName
    at: CutTable
    archive: Path | None
    anew: bool = False

    @property
    def shape(self) -> SchemaVersion:
        return in_lake(self.at.version)

    def run(self, wanted: TableIntent) -> CutTable:
        if self.intent.kind == "repair":
            return replace(self.at, current_version=self._rebuilt().version)
        if wanted.history_through is not None:
            return self._trimmed(wanted.history_through) if wanted.history_through else self._restored()
        paths = self.lease.paths
        history = self._optimized(paths.history(self.name), self.at.history_version, order=ORD)
        failpoint("upkeep.after_history")
        current = self._optimized(paths.current(self.name), self.at.current_version)
        return replace(self.at, history_version=history, current_version=current)

    def _commit(self, layer: str) -> CommitInfo:
        return commit_of_cycle(self.lease.paths.source, self.intent, layer, self.name)

    def _optimized(self, key: str, expected: int, order: str | None = None) -> int:
        path = self.lease.paths.url(key)
        self.lease.check()
        put_together(self.session, path, self._commit("").user_metadata, order)
        return self._version(path, expected)

    def _version(self, path: str, expected: int) -> int:
        """The version of the cycle's commit, else the newest. What changes no data is passed over."""
        told = self._commit("").user_metadata
        version, found = find_commit(path, expected, lambda commit: commit.user_metadata == told)
        return version if found is None else found.version

    def _trimmed(self, through: CycleNumber) -> CutTable:
        """History's rows up to cut `through`: those that were the table's rows then stay as they are, the others go."""
        path = self.lease.paths.url(self.lease.paths.history(self.name))
        commit = self._commit("history")
        bound = (through + 1) << ORDINAL_BITS
        old = self._before(self.at.history_version, bound)
        complete = completing(self.at, old)
        alive = _alive(self.shape, old, complete)
        kept = rows_of_state(self.shape, old, complete)
        if self.archive is not None:
            self._archived(old.join(alive, ORD, "left_anti"), self.archive)
            failpoint("upkeep.after_archive")
        self.lease.check()
        tagged(kept, commit).mode("overwrite").option("replaceWhere", f"{ORD} < {bound}").save(path)
        failpoint("upkeep.after_trim")
        version = self._version(path, self.at.history_version)
        # The last change up to there: from its position on history is whole. It may have left with an earlier trim.
        last = self._before(self.at.history_version, bound).agg(F.max(LSN)).collect()[0][0]
        known = Lsn.ZERO if self.at.history_low is None else self.at.history_low.at_lsn
        at_lsn = known if last is None else max(known, Lsn(int(last)))
        before = self.at.history_low is None or self.at.history_low.archived
        low = HistoryLow(through, at_lsn, archived=before and self.archive is not None)
        # By difference: rows that were damaged before keep the sum from being that of the files.
        new = replace(self.at, history_version=version, history_low=low)
        went, came = self._sum(self._before(self.at.history_version, bound)), self._sum(self._before(version, bound))
        return replace(new, history_sum=self.at.history_sum.minus(went).plus(came))

    def _sum(self, rows: DataFrame) -> HistorySum:
        return sum_of(self.shape, rows)

    def _before(self, version: int, bound: int) -> DataFrame:
        at = replace(self.at, history_version=version)
        return read_layer(self.session, self.lease.paths, self.name, at, "history").where(F.col(ORD) < bound)

    def _archived(self, rows: DataFrame, folder: Path) -> None:
        place = archive_of(folder, self.lease.paths, self.name) / f"{self.intent.number:012d}"
        pick(rows, history_columns(self.shape)).write.mode("overwrite").parquet(str(place))
        sync_folder(place, folder)

    def _restored(self) -> CutTable:
        """History with what the archive has of it: rows that are there are not brought again."""
        path = self.lease.paths.url(self.lease.paths.history(self.name))
        commit = self._commit("history")
        place = archived(self.archive, self.lease.paths, self.name)
        there = read_layer(self.session, self.lease.paths, self.name, self.at, "history")
        folders = sorted(str(part) for part in place.iterdir())
        rows = self.session.read.schema(there.schema).parquet(*folders).dropDuplicates([ORD])
        missing = rows.join(there.select(ORD), ORD, "left_anti").select(there.columns)
        self.lease.check()
        tagged(missing, commit).mode("append").save(path)
        version = self._version(path, self.at.history_version)
        low = self.at.history_low
        return replace(
            self.at,
            history_version=version,
            history_low=None if low is None or low.archived else low,
            history_sum=self.at.history_sum.plus(self._sum(missing)),
        )

    def _rebuilt(self) -> Applied:
        """Current as history adds it up: the keys whose rows differ go and come whole, or all rows, in one commit."""
        paths, shape = self.lease.paths, self.shape
        history = read_layer(self.session, paths, self.name, self.at, "history")
        desired = replayed(self.session, shape, history, completing(self.at, history))
        if self.anew:
            self.lease.check()
            return apply(
                self.session,
                paths.url(paths.current(self.name)),
                merge_key(shape),
                None,
                pick(desired, current_columns(shape)),
                self._commit("current"),
                wipe=True,
                expected_version=self.at.current_version,
            )
        desired = desired.withColumn(_DIGEST, _whole(shape))
        persisted = read_layer(self.session, paths, self.name, self.at).withColumn(_DIGEST, _whole(shape))
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


def _whole(shape: SchemaVersion) -> SparkColumn:
    """A row's digest with the places of its large values, where a later update may leave those out."""
    columns = [] if shape.is_bag or has_old_rows(shape) else [shape.columns[i] for i in large_columns(shape)]
    places = (F.when(has_value([c.name], c.attnum), holder(c.attnum)).cast("string") for c in columns)
    return F.concat_ws("|", row_key(shape), *(F.coalesce(place, F.lit("")) for place in places))


def rows_of_state(shape: SchemaVersion, history: DataFrame, complete: Complete) -> DataFrame:
    """The rows of history (its columns) that are the table's rows after them, each with its own place and time.

    They are complete, and hold what they had unchanged for the rows that named its holder.
    """
    alive = history.join(_alive(shape, history, complete), ORD, "left_semi")
    return pick(complete(alive), history_columns(shape))


def _alive(shape: SchemaVersion, history: DataFrame, complete: Complete) -> DataFrame:
    """The `_lp_ord` of those rows."""
    if shape.is_bag:
        # A copy in a bag has the ordinal of the row that brought it.
        net = added_up(shape, history, None, complete)
        return history.select(ORD).limit(0) if net.images is None else net.images.select(F.col(DUP).alias(ORD))
    if has_old_rows(shape):
        # A key may be unique only at commit: not the newest row of a key decides, but the one that is left.
        net = added_up(shape, history, None, complete)
        newest = net.checked[0]
        return newest.where(F.col("_lp_image").isNotNull()).select(F.col("_lp_image").alias(ORD))
    events = after_truncates(history)
    newest_first = Window.partitionBy(*(col(k) for k in merge_key(shape))).orderBy(F.col(ORD).desc())
    ranked = events.withColumn("_lp_rank", F.row_number().over(newest_first)).where(F.col("_lp_rank") == 1)
    return ranked.where(F.col(OP).isin("insert", "update")).select(ORD)
