"""Maintenance of the views that read a source, under that source's policy.

The source's own tables belong to `maintain`, one view's table to `lakeproof.views.optimize`.

A view that reads several sources is maintained with each of them, by the longest `cuts_s` and the smallest `small_files`
among them. If a refresh of views is in progress, maintenance waits for it; views that are not configured any
more are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.config.view_graph import sources_of
from lakeproof.errors import LakeError, TransientError
from lakeproof.events import Event, Report, Stop
from lakeproof.lake.delta.files.needed import Unread, remove_file
from lakeproof.lake.records.views.cuts import ViewsLock, one_refresh
from lakeproof.lake.records.views.previews import old_previews
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.retention import SpaceReclaimed, summed
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store
from lakeproof.views.optimize import KeptCuts, is_view_fragmented, kept_cuts, optimize_view, unneeded_files

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


def views_of(config: Config, source: str) -> list[ViewConfig]:
    """Return the views that read the source, directly or through others."""
    return [view for view in config.views.values() if source in sources_of(config.views, view.name)]


def _fitting(spark: SparkOnDemand, row_bytes: int) -> SparkSession:
    """Return a session in which rows of this size have room."""
    session = spark.get().newSession()
    fit(session, row_bytes)
    return session


def maintain_views(
    config: Config,
    source: str,
    spark: SparkOnDemand,
    report: Report,
    *,
    stop: Stop,
    now: datetime,
    wait_s: float = WAIT_S,
) -> ViewsMaintained:
    """Compact small files, remove old cuts and the files that only they needed; views in use by others are left.

    Raises TransientError, between two views or steps, if `stop` is set.
    """
    views, store = views_of(config, source), open_store(config.location)
    if not views:
        return ViewsMaintained()
    small, freed, busy, damaged = list[str](), SpaceReclaimed(), None, dict[str, Unread]()
    try:
        with _in_turn(store, stop, wait_s) as lock:
            for name, cut in sorted(_kept(config, views, now).newest.items()):
                stop_here(source, stop)
                own = SparkOnDemand(partial(_fitting, spark, cut.row_bytes), everywhere=spark.everywhere)
                try:
                    cut_made = optimize_view(own, store, cut, _small_files(config, name), lock)
                except LakeError as error:
                    damaged[name] = Unread(error.reason, error.remedy)
                    continue
                if cut_made is not None:
                    small.append(name)
                    report(
                        Event("maintain.view", f"view {name}: cut {cut_made.number}, files compacted", {"view": name})
                    )
            stop_here(source, stop)
            kept = _kept(config, views, now)
            for key in kept.old:
                freed = freed.plus(SpaceReclaimed(1, store.size(key)))
                store.delete(key)
            for place, size in unneeded_files(store, kept, damaged):
                remove_file(place)
                freed = freed.plus(SpaceReclaimed(1, size))
            for folder, files, size in old_previews(store, now):
                store.delete_all(folder)
                freed = freed.plus(SpaceReclaimed(files, size))
    except TransientError as error:
        # If asked to stop, the run ends as at any other step; a refresh in progress is no reason to fail.
        stop_here(source, stop)
        report(Event("maintain.views_busy", f"views are left to the next run: {error}"))
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
    views, store = views_of(config, source), open_store(config.location)
    kept, damaged, small = _kept(config, views, now), dict[str, Unread](), list[str]()
    for name, cut in sorted(kept.newest.items()):
        try:
            small += [name] if is_view_fragmented(store, cut, _small_files(config, name)) else []
        except LakeError as error:
            damaged[name] = Unread(error.reason, error.remedy)
    sizes = chain(map(store.size, kept.old), (size for _, size in unneeded_files(store, kept, damaged)))
    previews = (SpaceReclaimed(files, size) for _, files, size in old_previews(store, now))
    return ViewsMaintained(
        tuple(small), summed(chain((SpaceReclaimed(1, size) for size in sizes), previews)), damaged=damaged
    )


def _kept(config: Config, views: list[ViewConfig], now: datetime) -> KeptCuts:
    return kept_cuts(
        open_store(config.location), {v.name: max(p.cuts_s for p in _policies(config, v.name)) for v in views}, now
    )


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
