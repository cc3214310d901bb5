"""Finds a view's drift without a newer cut of its sources: damage, another version of the engine, an audit that is due.

Correcting it does not belong here (`refresh`), nor an edited definition, which is no drift until it is applied
(`lakeproof.lake.records.views.definitions`). This needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from lakeproof.config.model import ViewConfig
from lakeproof.lake.delta.log.commits import DeltaCommit, newest_version, read_commit
from lakeproof.lake.records.views.cuts import ViewCut, newest_view_cut, other_versions, view_path
from lakeproof.storage.store import Store
from lakeproof.storage.times import time_of


def why_drifted(store: Store, view: ViewConfig, cut: ViewCut, *, here: bool = True) -> str | None:
    """Return why a refresh has to look at a view, although its sources may have no newer cut than `cut`, its newest.

    `here`: refreshes run in processes like this one, so that its versions count.
    """
    if not is_settled(store, cut):
        return "its table was written by somebody else, or moved"
    return why_not_trusted(view, cut, here=here)


def why_not_trusted(view: ViewConfig, cut: ViewCut, *, here: bool = True) -> str | None:
    """Return why a view's rows, as its newest cut has them, are to be computed as a whole again; None if they are not."""
    other = other_versions(cut.engine) if here else None
    if other is not None:
        return f"it was computed as a whole with another version: {other}"
    age = datetime.now(timezone.utc) - time_of(cut.whole_at)
    if age >= timedelta(seconds=view.audit_s):
        return f"it was computed as a whole {age.total_seconds():,.0f} s ago"
    return None


def is_settled(store: Store, cut: ViewCut) -> bool:
    """True if the table has the rows that its newest cut names: it was not moved away, and no data was changed since."""
    newest = newest_version(view_path(store, cut.view))
    return newest >= cut.delta_version and all(c is not None and not c.changes_data for c in _since(store, cut, newest))


def newest_foreign_write(store: Store, view: str) -> str | None:
    """Return what somebody else has done to a view's table since its newest cut; None if nobody has, or it has no cut.

    A refresh that is at work is nobody else. Raises LakeError for a damaged cut or log.
    """
    cut = newest_view_cut(store, view)
    if cut is None:
        return None
    newest = newest_version(view_path(store, view), cut.delta_version)
    if newest < cut.delta_version:
        return f"its table is not there any more: version {cut.delta_version} was moved or removed"
    for commit in _since(store, cut, newest):
        if commit is None:
            return "its log has a gap"
        if commit.changes_data and not commit.is_by_us:
            return f"somebody else wrote its table: {commit.description}"
    return None


def _since(store: Store, cut: ViewCut, newest: int) -> Iterator[DeltaCommit | None]:
    path = view_path(store, cut.view)
    return (read_commit(path, version) for version in range(cut.delta_version + 1, newest + 1))
