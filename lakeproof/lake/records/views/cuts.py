"""The views' cuts: which Delta version of a view is its answer at which cuts of the sources that it reads.

Computing and committing a view is in `lakeproof.views.refresh`; FORMAT.md has the document's fields.

One sequence of numbers serves all views of a lake. A number is given once, by put-if-absent. The sequence may have a gap, if
a refresh was killed between its Delta commit and its cut: the next refresh of that view takes a number past both.

A cut names the versions of what computed it: the rows of another version are no basis, since it may compute differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from threading import Lock

import lakeproof
from lakeproof.errors import LakeError
from lakeproof.field_types import Count, CycleField, Sha256
from lakeproof.names import CycleNumber
from lakeproof.storage.document import Document, Part, TimeField
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import LockHandle, Store, number_in, put_new, refuse_if_locked

_REFRESHES = "another process is refreshing or maintaining views of this lake"


@dataclass(frozen=True, slots=True)
class ViewVersion(Part):
    """A view's Delta table as another view read it: `table_id` is Delta's own, another one after the table was moved away.

    `row_bytes` is its cut's.
    """

    delta_version: Count
    table_id: str
    row_bytes: Count


@dataclass(frozen=True, slots=True)
class ExternalVersion(Part):
    """An external table as a view read it: the place that its name stood for, Delta's id of the table, and the version."""

    path: str
    table_id: str
    delta_version: Count


@dataclass(frozen=True, slots=True)
class ViewCut(Document):
    """One refresh of one view: `sources` maps each source it read to the number of the cut it was read at.

    They include the sources of the views that a view reads. `views` has the views that it read itself, of the same
    `refresh`, and `external` its external tables, by place or name in a catalog. `row_bytes` is the most that one of its
    rows is taken to have in memory.

    `inserted` and `retracted` are rows; if both are 0, `delta_version` is the previous version, or has the same rows in
    other files. Cuts with the same `refresh` were computed at the same cuts of the sources. `strategy` is how it was
    computed (`lakeproof.views.incremental.strategies`, or `full`, for the `reason` given), from `changed_rows` of its tables
    (None: from all); `rows_read` are the rows that scans of the tables and of the view gave for it; `whole_at` is when it
    was computed as a whole last, and `engine` the versions that it was computed with then. `definition_sha256` names its
    definition (`definitions`), `replaced_sha256` the one that was applied before it.
    """

    FORMAT = "lakeproof.viewcut/1"

    number: CycleField
    view: str
    delta_version: Count
    definition_sha256: Sha256
    sources: Mapping[str, CycleField]
    inserted: Count
    retracted: Count
    created_at: TimeField
    refresh: Count
    strategy: str
    reason: str | None
    changed_rows: Count | None
    rows_read: Count
    whole_at: TimeField
    engine: Mapping[str, str]
    replaced_sha256: Sha256 | None
    views: Mapping[str, ViewVersion] = field(default_factory=dict)
    external: Mapping[str, ExternalVersion] = field(default_factory=dict)
    row_bytes: Count = 0


def view_path(store: Store, view: str) -> str:
    """Return the place of a view's Delta table; raises ConfigError for a name that no view can have."""
    return store.url(LakePaths.view(view))


def newest_view_cut_number(store: Store) -> CycleNumber:
    """Return the number of the newest cut of any view, 0 if there is none; raises LakeError for a foreign file."""
    keys = store.list(LakePaths.view_cuts())
    return CycleNumber(number_in(keys[-1]) if keys else 0)


def newest_view_cut(store: Store, view: str) -> ViewCut | None:
    """Return the view's newest cut, None if it has none; raises LakeError if a document is damaged.

    Cost: reads documents backwards up to the first of this view.
    """
    return next((cut for cut in newest_first(store) if cut.view == view), None)


def newest_first(store: Store) -> Iterator[ViewCut]:
    """Yield the cuts of all views, newest first; raises LakeError if a document is damaged."""
    return (_read(store, key) for key in reversed(store.list(LakePaths.view_cuts())))


def cuts_in_order(store: Store) -> Iterator[ViewCut]:
    """Yield the cuts of all views, oldest first; raises LakeError if a document is damaged."""
    return (_read(store, key) for key in store.list(LakePaths.view_cuts()))


def put_cut(store: Store, cut: ViewCut) -> None:
    """Write a cut; raises TransientError if its number is taken."""
    put_new(store, LakePaths.view_cut(cut.number), cut.to_bytes(), f"view {cut.view}: cut {cut.number}")


class ViewsLock:
    """The lock on a lake's views, as `one_refresh` holds it: views of one process get their cuts' numbers from it.

    Several may be at work, so a number that is taken later may be put first; those of one view grow.
    """

    def __init__(self, store: Store, lock: LockHandle) -> None:
        self._lock, self._taken = lock, Lock()
        self._last = int(newest_view_cut_number(store))

    def check(self) -> None:
        """Raise TransientError if another process may hold the lock by now."""
        self._lock.check()

    def next_number(self, above: int) -> CycleNumber:
        """Return a number that nobody has, greater than `above` and than every cut's that was there at first."""
        with self._taken:
            self._last = max(self._last, above) + 1
            return CycleNumber(self._last)


@contextmanager
def one_refresh(store: Store) -> Iterator[ViewsLock]:
    """Keep other processes from refreshing views in this lake; raises TransientError if another process is refreshing.

    All views share one sequence of numbers, and a refresh takes back what it finds above a view's cut. On an object store a
    process may sleep for longer than its lock lasts, so whoever holds it checks it again before a cut.
    """
    with store.lock(LakePaths.refresh_lock(), "views", _REFRESHES) as lock:
        yield ViewsLock(store, lock)


def check_free_to_refresh(store: Store) -> None:
    """Raise TransientError as `one_refresh` would by now: before a JVM is started that would only have to wait."""
    refuse_if_locked(store, LakePaths.refresh_lock(), "views", _REFRESHES)


def _read(store: Store, key: str) -> ViewCut:
    cut = ViewCut.from_bytes(store.get(key), key)
    if cut.number != number_in(key):
        raise LakeError(key, f"it has number {cut.number} inside", "restore it from a backup")
    return cut


_PACKAGES = {"spark": "pyspark", "delta": "delta-spark"}


@cache
def engine_versions() -> Mapping[str, str]:
    """Return the versions of Spark, Delta and lakeproof in this process; without those that are not installed."""
    versions = {"lakeproof": lakeproof.__version__}
    for name, package in _PACKAGES.items():
        try:
            versions[name] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def other_versions(then: Mapping[str, str]) -> str | None:
    """Return which of them were others, None if none was: `spark 4.1.0, now 4.2.0`."""
    now = engine_versions()
    changed = [
        f"{name} {then.get(name)}, now {number}" for name, number in sorted(now.items()) if then.get(name) != number
    ]
    return ", ".join(changed) or None
