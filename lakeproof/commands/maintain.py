"""Retention and maintenance of one source, as one policy: what is no longer needed goes, small files become large ones.

The rows' cycles belong to `lakeproof.lake.cycle.maintenance`, a landing's links to `lakeproof.landing.retention`, the
files of a Delta table to `lakeproof.lake.delta.files`; when it runs to its callers.

    1 cycle     old changes leave history (archived first), where `history_s` says so
    2 cycle     small files are put together
    3 cuts      that a newer one has followed for longer than `cuts_s`; with their intents, and leases of the past
    4 tables    files and log that no kept cut needs
    5 landing   links that are in the lake for longer than `landing_s`, and that nothing reads again
    6 snapshots the chunks of those that have entered
    7 views     that read the source: their small files, cuts and files (`maintain_views`)

Each step takes away what the steps before made unneeded, oldest first, and finds by itself what a killed run has left.
A cut that is kept is readable: all that it names stays until the cut is gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession

from lakeproof.commands.prove_lake import refuse_damaged
from lakeproof.config.model import Config, RetentionConfig
from lakeproof.config.table_names import write_table
from lakeproof.errors import LakeError, TransientError
from lakeproof.events import Event, Report, Stop
from lakeproof.failpoints import failpoint
from lakeproof.lake.cycle.maintenance import archived, begin_upkeep, finish_upkeep
from lakeproof.lake.cycle.runner import archive_folder, finish_interrupted, leased
from lakeproof.lake.cycle.table_files import Damaged, first_change_since, fragmented, unneeded_files
from lakeproof.lake.delta.files import Unread
from lakeproof.lake.planning.pending import entered_chunks, pending_snapshots
from lakeproof.lake.records.cut_documents import unneeded_bases
from lakeproof.lake.records.documents import Cut, Held, TableIntent
from lakeproof.lake.records.lease import Lease, newest_epoch
from lakeproof.lake.records.store import cut_numbers, newest_cut, read_cut
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark.session import driver_lives
from lakeproof.landing.chain import Chain
from lakeproof.landing.incarnation_record import has_head, incarnations
from lakeproof.landing.retention import Freed, below, first_needed, freed, put_base, remove_below, summed
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.snapshot.folder import open_points
from lakeproof.storage.fields import time_of
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError, Store
from lakeproof.views.maintain import maintain_views, stop_here, views_plan


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done: the cycles that ended, the tables in them, and what each step removed (or would remove).

    `views` are those whose files were put together; `damaged` says which tables and views could not be read, and why: they
    keep what they have.
    """

    cycles: tuple[CycleNumber, ...] = ()
    trimmed: tuple[TableName, ...] = ()
    optimized: tuple[TableName, ...] = ()
    repaired: tuple[TableName, ...] = ()
    views: tuple[str, ...] = ()
    freed: Mapping[str, Freed] = field(default_factory=dict)
    damaged: Mapping[str, Unread] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """All files that were removed."""
        return sum(part.files for part in self.freed.values())

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(part.bytes for part in self.freed.values())


@without_java(lambda _config, name, *_, **__: name)
def maintain(
    config: Config,
    name: str,
    spark: SparkSession,
    report: Report,
    *,
    rebuild: Iterable[TableName] = (),
    restore: Iterable[TableName] = (),
    now: datetime | None = None,
    stop: Stop | None = None,
) -> Maintained:
    """Keep one source's lake as its policy says; `rebuild` makes these current tables from history first.

    `restore` brings back what the archive has of these tables' history, and removes nothing of any history in this run.
    Raises LakeError where there is no cut yet, TransientError where another process holds the lease, or where `stop` was
    asked for between two tables or steps.
    """
    source, moment = config.source(name), now or datetime.now(timezone.utc)
    store, paths = open_store(config.lake), LakePaths(config.lake, name)
    stop = stop or Stop()
    with driver_lives(spark), leased(None, store, paths, spark) as lease:
        cycles = [c.number for c in finish_interrupted(spark, lease, source, report)]
        damaged = Damaged(name)
        work = _Work(spark, lease, source.retention, report, moment, stop, cycles, damaged)
        asked, restored = tuple(rebuild), tuple(restore)
        _check_asked(store, paths, archive_folder(source.retention), asked, restored)
        if asked:
            refuse_damaged(spark, paths, work.newest(), asked)
        repaired = work.cycle("repair", dict.fromkeys(asked))
        work.cycle("maintenance", dict.fromkeys(restored, CycleNumber(0)))
        trimmed = () if restored else work.trim()
        small = work.cycle("maintenance", dict.fromkeys(work.to_optimize()))
        removed = _remove(store, paths, source.retention, moment, stop, damaged)
    views = maintain_views(config, name, spark, report, stop=stop, now=moment)
    freed, unread = {**removed, "views": views.freed}, _unread(damaged, views.damaged)
    done = Maintained(tuple(cycles), trimmed, small, repaired, views.optimized, freed, unread)
    for thing, why in unread.items():
        report(Event("maintain.damaged", f"{thing}: {why}", {"thing": thing, "reason": why.reason}))
    told = {"files": done.files, "bytes": done.bytes, "cycles": [int(c) for c in done.cycles]}
    report(Event("maintain.done", f"removed {done.files} files of {done.bytes} bytes", told))
    return done


def maintenance_plan(config: Config, name: str, now: datetime | None = None) -> Maintained:
    """What a run would put together and remove now, without Spark and without a change; what leaves history is left out.

    Takes no lease. Raises LakeError where there is no cut yet, TransientError where what it looks at goes meanwhile.
    """
    source, moment = config.source(name), now or datetime.now(timezone.utc)
    store, paths = open_store(config.lake), LakePaths(config.lake, name)
    cut = newest_cut(store, paths)
    if cut is None:
        raise _no_cut(name)
    try:
        damaged = Damaged(name)
        small = fragmented(paths, cut, source.retention.small_files, damaged)
        views, freed = views_plan(config, name, moment), _would_remove(store, paths, source.retention, moment, damaged)
    except (NotFoundError, FileNotFoundError) as error:
        raise TransientError(
            f"{name}: what maintenance would do", f"a file was removed while it was looked at: {error}", "ask again"
        ) from error
    unread = _unread(damaged, views.damaged)
    return Maintained(optimized=small, views=views.optimized, freed={**freed, "views": views.freed}, damaged=unread)


def _unread(tables: Mapping[TableName, Unread], views: Mapping[str, Unread]) -> dict[str, Unread]:
    return {str(table): why for table, why in tables.items()} | {f"view {view}": why for view, why in views.items()}


@dataclass(frozen=True, slots=True)
class _Work:
    """The cycles of one run; `cycles` has their numbers."""

    spark: SparkSession
    lease: Lease
    retention: RetentionConfig
    report: Report
    now: datetime
    stop: Stop
    cycles: list[CycleNumber]
    damaged: Damaged

    def cycle(
        self,
        kind: str,
        tables: Mapping[TableName, CycleNumber | None],
        held: Mapping[TableName, Held] | None = None,
    ) -> tuple[TableName, ...]:
        """One cycle over some tables; the number is where their history becomes a state, if it does. It holds `held`.

        Returns those in which it was done: a table that someone else has written is left as it is, and held.
        """
        if not tables and not held:
            return ()
        stop_here(self.lease.paths.source, self.stop)
        cut = self.newest()
        name = self.lease.paths.source
        wanted = {
            t: TableIntent(cut.table(t, name).at_lsn, cut.table(t, name).version.id, history_through=through)
            for t, through in tables.items()
        }
        intent, sha256 = begin_upkeep(self.lease, cut, kind, wanted, held)
        archive = archive_folder(self.retention)
        between = partial(stop_here, name, self.stop)
        _, refused = finish_upkeep(
            self.spark, self.lease, intent=intent, sha256=sha256, previous=cut, archive=archive, between=between
        )
        self.cycles.append(intent.number)
        done = tuple(sorted(tables.keys() - refused.keys()))
        self.report(Event("maintain.cycle", f"cycle {intent.number} ({kind})", {"tables": list(map(str, done))}))
        for table, why in {**(held or {}), **refused}.items():
            self.report(Event("maintain.held", f"{table}: {why.reason}; {why.remedy}", {"table": str(table)}))
        return done

    def trim(self) -> tuple[TableName, ...]:
        """One cycle over the tables with changes that are too old: all up to one. It holds those that it can't read."""
        if self.retention.history_s == 0:
            return ()
        cut, limit = self.newest(), self.now - timedelta(seconds=self.retention.history_s)
        firsts, lost = first_change_since(self.spark, self.lease.paths, cut, limit, self.damaged)
        through = CycleNumber(
            min((int(first) for first in firsts.values() if first is not None), default=int(cut.number)) - 1
        )
        low = {t: 0 if (known := cut.tables[t].history_low) is None else int(known.cut) for t in firsts}
        store, paths = self.lease.store, self.lease.paths
        fit = {t: known for t, known in low.items() if t not in cut.held and not reshaped(store, paths, t)}
        return self.cycle("maintenance", {t: through for t, known in fit.items() if known < through}, lost)

    def to_optimize(self) -> tuple[TableName, ...]:
        """The tables with too many small files."""
        return fragmented(self.lease.paths, self.newest(), self.retention.small_files, self.damaged)

    def newest(self) -> Cut:
        """Where the lake stands; raises LakeError where there is no cut yet."""
        cut = newest_cut(self.lease.store, self.lease.paths)
        if cut is None:
            raise _no_cut(self.lease.paths.source)
        return cut


def _check_asked(
    store: Store,
    paths: LakePaths,
    archive: Path | None,
    rebuild: Iterable[TableName],
    restore: Iterable[TableName],
) -> None:
    """Refuse what can't be done before an intent stands for it: nothing else is done until an intent has been finished."""
    name = paths.source
    for table in rebuild:
        if reshaped(store, paths, table):
            raise LakeError(
                f"{name}: {table}",
                "its shape has changed, and history has older rows in the shape they had",
                f"run `lakeproof prove {name} --tables {shlex.quote(write_table(table))} --repair` instead",
            )
    for table in restore:
        place = archived(archive, paths, table)
        if reshaped(store, paths, table):
            raise LakeError(
                f"{name}: {table}",
                "its shape has changed, and the archive has its changes in the shape they had",
                f"read the Parquet files in {place}",
            )


def reshaped(store: Store, paths: LakePaths, table: TableName) -> bool:
    """Whether the table's shape has changed since it is in the lake: its history is then not one sequence of like rows."""
    return len(store.list(paths.shapes(table))) > 1


def _no_cut(source: str) -> LakeError:
    return LakeError(
        f"{source}: cuts", "there is none yet, and nothing to maintain", f"run `lakeproof compact {source}`"
    )


def _remove(  # noqa: PLR0917  what `_would_remove` takes, and what may end it
    store: Store, paths: LakePaths, retention: RetentionConfig, now: datetime, stop: Stop, damaged: Damaged
) -> dict[str, Freed]:
    """Steps 3 to 6."""
    stop_here(paths.source, stop)
    total = {"cuts": _delete(store, old_documents(store, paths, retention, now))}
    failpoint("maintain.after_cuts")
    stop_here(paths.source, stop)
    total["tables"] = Freed()
    for place, size in unneeded_files(store, paths, (), damaged):
        place.unlink(missing_ok=True)
        total["tables"] = total["tables"].plus(Freed(1, size))
    failpoint("maintain.after_tables")
    stop_here(paths.source, stop)
    total["landing"] = Freed()
    for incarnation, number in _landings(store, paths, retention, now):
        put_base(Chain.open(store, paths, incarnation), number)
        chain = Chain.open(store, paths, incarnation)
        total["landing"] = total["landing"].plus(remove_below(chain, chain.first_number))
    failpoint("maintain.after_landing")
    stop_here(paths.source, stop)
    total["snapshots"] = _delete(store, _chunks(store, paths))
    return total


def _would_remove(
    store: Store, paths: LakePaths, retention: RetentionConfig, now: datetime, damaged: Damaged
) -> dict[str, Freed]:
    documents = old_documents(store, paths, retention, now)
    chains = [(Chain.open(store, paths, i), number) for i, number in _landings(store, paths, retention, now)]
    return {
        "cuts": _sizes(store, documents),
        "tables": summed(Freed(1, size) for _, size in unneeded_files(store, paths, documents, damaged)),
        "landing": summed(freed(chain, below(chain, number)) for chain, number in chains),
        "snapshots": _sizes(store, _chunks(store, paths)),
    }


def old_documents(store: Store, paths: LakePaths, retention: RetentionConfig, now: datetime) -> list[str]:
    """The cuts that may go, oldest first, their intents before them, then what only they were based on, and old leases.

    Reads the cuts that go.

    A cut is kept for its time from when the next one followed it: until then it was the newest.
    """
    numbers = cut_numbers(store, paths)
    limit = now - timedelta(seconds=retention.cuts_s)
    gone: list[str] = []
    for number, following in pairwise(numbers):
        if time_of(read_cut(store, paths, following).created_at) >= limit:
            break
        gone += [paths.intent(number), paths.cut(number)]
    gone += unneeded_bases(store, paths, numbers[len(gone) // 2]) if numbers else []
    epoch = newest_epoch(store, paths)
    leases = [key for key in store.list(paths.leases) if key < paths.lease(epoch)]
    return [key for key in gone if store.exists(key)] + leases


def _landings(
    store: Store, paths: LakePaths, retention: RetentionConfig, now: datetime
) -> Iterable[tuple[Incarnation, int]]:
    """Each landing, and the first link of it that has to stay."""
    cut = newest_cut(store, paths)
    older_than = now - timedelta(seconds=retention.landing_s)
    for incarnation in incarnations(store, paths):
        if cut is None or incarnation > cut.incarnation or not has_head(store, paths, incarnation):
            continue
        chain = Chain.open(store, paths, incarnation)
        if incarnation < cut.incarnation:
            yield incarnation, first_needed(chain, chain.next_number, chain.end, older_than)
            continue
        # A snapshot that has not entered is followed by what landed since; so is one that is being copied.
        points = [p.consistent_point for p in pending_snapshots(store, paths, incarnation, cut).values()]
        points += open_points(store, paths, incarnation)
        yield incarnation, first_needed(chain, cut.next_segment, min([cut.position, *points]), older_than)


def _chunks(store: Store, paths: LakePaths) -> list[str]:
    cut = newest_cut(store, paths)
    return [] if cut is None else entered_chunks(store, paths, cut)


def _sizes(store: Store, keys: Iterable[str]) -> Freed:
    return summed(Freed(1, store.size(key)) for key in keys)


def _delete(store: Store, keys: list[str]) -> Freed:
    total = _sizes(store, keys)
    for key in keys:
        store.delete(key)
    # A cut that came back would name files that are gone.
    store.settle(keys)
    return total
