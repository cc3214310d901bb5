"""Views' tables kept small: small files compacted, old cuts removed, and the files that only those needed.

Which views, and how long a cut is kept, belongs to `lakeproof.views.maintain`; computing a view to `refresh`. The
caller holds `one_refresh`: a file of a commit in the making would not be known.

Files are compacted by one commit, and a cut that names it with the sources and the definition of the cut before: it is
the same answer. What a killed run has left is taken out of the log first. Of a view that somebody else has written since its
newest cut nothing is compacted: the next refresh decides what it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.needed import Unread, table_files, unneeded
from lakeproof.lake.delta.files.optimize import is_fragmented, optimize
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.records.views.cuts import ViewCut, ViewsLock, cuts_in_order, view_path
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.storage.times import time_of
from lakeproof.views.cycle import begin_view_cycle, end_view_cycle
from lakeproof.views.drift import is_settled


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
    path, number = cycle.path, cycle.number
    if is_fragmented(path, cut.delta_version, small_files):
        metadata = json.dumps({"view": cut.view, "number": int(number)}, sort_keys=True)
        optimize(SparkOnDemand.of(spark), path, int(number), metadata)
    version = newest_version(path)
    if version == cut.delta_version:
        return None
    same = replace(cut, number=number, delta_version=version, inserted=0, retracted=0)
    return end_view_cycle(cycle, lambda created_at: replace(same, created_at=created_at))


def unneeded_files(store: Store, kept: KeptCuts, damaged: dict[str, Unread]) -> Iterator[tuple[str, int]]:
    """The files of views that nothing needs from the version on that their oldest kept cut names, each with its bytes.

    None for a table that does not reach the newest cut's version: it was moved away, and the next refresh decides what
    it is; nor of one that can't be read, which is added to `damaged`.
    """
    for view, cut in sorted(kept.oldest.items()):
        path, newest = view_path(store, view), kept.newest[view].delta_version
        try:
            files = table_files(path, cut.delta_version, newest) if newest_version(path) >= newest else None
        except LakeError as error:
            damaged[view] = Unread(error.reason, error.remedy)
            continue
        if files is not None:
            yield from unneeded(path, files)
