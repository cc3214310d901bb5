"""Maintenance of the views that read a source, under that source's policy: small files compacted, old cuts removed.

A view that reads several sources is maintained with each of them, by the longest `cuts_s` and the smallest `small_files`
among them. If a refresh of views is in progress, maintenance waits for it, and while it works it keeps refreshes away: a
file of a commit in the making would not be known. Views that are not configured any more are left as they are.

Files are compacted by one commit, and a cut that names it with the sources and the definition of the cut before: it is
the same answer. What a killed run has left is taken out of the log first. Of a view that somebody else has written since its
newest cut nothing is compacted: the next refresh decides what it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.config.view_graph import readers_of, sources_of
from lakeproof.errors import LakeError, TransientError
from lakeproof.events import Event, RunControl, Stop
from lakeproof.lake.delta.files.needed import Unread, remove_files, table_files, unneeded
from lakeproof.lake.delta.files.optimize import SmallFiles, is_fragmented
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.records.views.cuts import ViewCut, ViewsLock, cuts_in_order, one_refresh, view_path
from lakeproof.lake.records.views.definitions import old_previews
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.landing.retention import SpaceReclaimed, remove_keys, space_of, summed
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.storage.times import time_of
from lakeproof.views.cycle import begin_view_cycle, end_view_cycle
from lakeproof.views.drift import is_settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A refresh of views takes as long as their queries; what was not waited for is done by the next run.
WAIT_S = 300.0
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class ViewsMaintained:
    """The work that was done (or would be): views whose files were compacted, and the files removed.

    `busy`: why the rest was left to the next run. `damaged`: the views that could not be read, with reasons.
    """

    optimized: tuple[str, ...] = ()
    freed: SpaceReclaimed = field(default_factory=SpaceReclaimed)
    busy: str | None = None
    damaged: Mapping[str, Unread] = field(default_factory=dict)


def _fitting(spark: SparkOnDemand, row_bytes: int) -> SparkSession:
    """Return a session in which rows of this size have room."""
    session = spark.get().newSession()
    fit(session, row_bytes)
    return session


def maintain_views(
    config: Config,
    source: str,
    spark: SparkOnDemand,
    control: RunControl,
    *,
    now: datetime,
    wait_s: float = WAIT_S,
) -> ViewsMaintained:
    """Compact small files, remove old cuts and the files that only they needed; views in use by others are left.

    Raises TransientError, between two views or steps, if it was asked to stop.
    """
    views, store = readers_of(config.views, [source]), open_store(config.location)
    if not views:
        return ViewsMaintained()
    small, freed, busy, damaged = list[str](), SpaceReclaimed(), None, dict[str, Unread]()
    try:
        with _in_turn(store, control.stop, wait_s) as lock:
            for name, cut in sorted(_kept(config, store, views, now).newest.items()):
                stop_here(source, control.stop)
                own = SparkOnDemand(partial(_fitting, spark, cut.row_bytes), everywhere=spark.everywhere)
                try:
                    cut_made = optimize_view(own, store, cut, _small_files(config, name), lock)
                except LakeError as error:
                    damaged[name] = Unread(error.reason, error.remedy)
                    continue
                if cut_made is not None:
                    small.append(name)
                    control.report(
                        Event("maintain.view", f"view {name}: cut {cut_made.number}, files compacted", {"view": name})
                    )
            stop_here(source, control.stop)
            kept = _kept(config, store, views, now)
            lock.check()
            freed = freed.plus(remove_keys(store, kept.old))
            for unneeded_files in unneeded_view_files(store, kept, damaged):
                lock.check()
                freed = freed.plus(remove_files(unneeded_files))
            for folder, files, size in old_previews(store, now):
                store.delete_all(folder)
                freed = freed.plus(SpaceReclaimed(files, size))
    except TransientError as error:
        # If asked to stop, the run ends as at any other step; a refresh in progress is no reason to fail.
        stop_here(source, control.stop)
        control.report(Event("maintain.views_busy", f"views are left to the next run: {error}"))
        busy = error.reason
    return ViewsMaintained(tuple(small), freed, busy, damaged)


def stop_here(source: str, stop: Stop) -> None:
    """Raise TransientError if the run should stop: this is a safe point."""
    if stop.requested:
        raise TransientError(
            f"{source}: maintenance", "it was asked to stop", "run it again: a cycle that was begun is finished first"
        )


def views_plan(config: Config, source: str, now: datetime) -> ViewsMaintained:
    """Return what a run would do now, without a change; files that compacting would make unneeded are not counted."""
    views, store = readers_of(config.views, [source]), open_store(config.location)
    kept, damaged, small = _kept(config, store, views, now), dict[str, Unread](), list[str]()
    for name, cut in sorted(kept.newest.items()):
        try:
            small += [name] if is_view_fragmented(store, cut, _small_files(config, name)) else []
        except LakeError as error:
            damaged[name] = Unread(error.reason, error.remedy)
    unneeded_files = chain.from_iterable(unneeded_view_files(store, kept, damaged))
    tables = (SpaceReclaimed(1, size) for _, size in unneeded_files)
    previews = (SpaceReclaimed(files, size) for _, files, size in old_previews(store, now))
    freed = summed(chain([space_of(store, kept.old)], tables, previews))
    return ViewsMaintained(tuple(small), freed, damaged=damaged)


def _kept(config: Config, store: Store, views: list[ViewConfig], now: datetime) -> KeptCuts:
    return kept_cuts(store, {v.name: max(p.cuts_s for p in _policies(config, v.name)) for v in views}, now)


def _small_files(config: Config, view: str) -> int:
    return min(policy.small_files for policy in _policies(config, view))


def _policies(config: Config, view: str) -> list[RetentionConfig]:
    return [config.sources[source].retention for source in sources_of(config.views, view)]


@contextmanager
def _in_turn(store: Store, stop: Stop, wait_s: float) -> Iterator[ViewsLock]:
    """Lock the views for the block; raises TransientError if a refresh lasts too long, or the run should stop."""
    with ExitStack() as stack:
        waited = 0.0
        while True:
            try:
                lock = stack.enter_context(one_refresh(store))
                break
            except TransientError:
                if waited >= wait_s or stop.wait(_LOOK_S):
                    raise
                waited += _LOOK_S
        yield lock


@dataclass(frozen=True, slots=True)
class KeptCuts:
    """The keys of the views' cuts that may be removed, and each view's oldest and newest cut that is kept."""

    old: list[str] = field(default_factory=list)
    oldest: dict[str, ViewCut] = field(default_factory=dict)
    newest: dict[str, ViewCut] = field(default_factory=dict)


def kept_cuts(store: Store, cuts_s: Mapping[str, float], now: datetime) -> KeptCuts:
    """Retention of the views in `cuts_s`: a cut is kept until the view's next cut is older than so many seconds.

    Reads every cut of every view; other views' cuts are left alone. Only the oldest cuts of a view may go:
    a clock that was put back must not take away what an earlier cut names.
    """
    kept = KeptCuts()
    for cut in cuts_in_order(store):
        kept_s = cuts_s.get(cut.view)
        if kept_s is None:
            continue
        before, oldest = kept.newest.get(cut.view), kept.oldest.get(cut.view)
        aged = oldest is before and time_of(cut.created_at) < now - timedelta(seconds=kept_s)
        if before is not None and aged:
            kept.old.append(LakePaths.view_cut(before.number))
        # Versions that begin again belong to another table: the table of the earlier cuts was moved away.
        if before is None or aged or cut.delta_version < before.delta_version:
            kept.oldest[cut.view] = cut
        kept.newest[cut.view] = cut
    return kept


def is_view_fragmented(store: Store, cut: ViewCut, small_files: int) -> bool:
    """True if the view has so many small files, and may be compacted."""
    return is_settled(store, cut) and is_fragmented(view_path(store, cut.view), cut.delta_version, small_files)


def optimize_view(spark: AnySpark, store: Store, cut: ViewCut, small_files: int, lock: ViewsLock) -> ViewCut | None:
    """Compact a view's small files and return its new cut, None if there was nothing to do; `cut` is its newest.

    `spark` is a session of the caller's own, `lock` that of `one_refresh`.
    """
    cycle = begin_view_cycle(store, cut.view, cut, lock)
    if not is_settled(store, cut):
        return None
    path, number, version = cycle.path, cycle.number, cycle.before
    if is_fragmented(path, cut.delta_version, small_files):
        metadata = json.dumps({"view": cut.view, "number": int(number)}, sort_keys=True)
        version = SmallFiles(SparkOnDemand.of(spark), read_state(path, version)).optimize(int(number), metadata)
    if version == cut.delta_version:
        return None
    same = replace(cut, number=number, delta_version=version, inserted=0, retracted=0)
    return end_view_cycle(cycle, lambda created_at: replace(same, created_at=created_at))


def unneeded_view_files(store: Store, kept: KeptCuts, damaged: dict[str, Unread]) -> Iterator[list[tuple[str, int]]]:
    """Yield the files of views that nothing needs from the version on that their oldest kept cut names: a list for each.

    None of a table that does not reach the newest cut's version: it was moved away, and the next refresh decides what
    it is; nor of one that can't be read, which is added to `damaged`.
    """
    for view, cut in sorted(kept.oldest.items()):
        path, newest = view_path(store, view), kept.newest[view].delta_version
        try:
            files = table_files(path, cut.delta_version, newest) if newest_version(path) >= newest else None
        except LakeError as error:
            damaged[view] = Unread(error.reason, error.remedy)
            continue
        if files is not None and (unneeded_files := unneeded(path, files)):
            yield unneeded_files
