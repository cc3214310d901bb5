"""The audit of a view: its rows, compared with its query's answer at the cuts that it was computed at.

A query's answer is the same each time: what may change it (a random number, the time) is refused (`query_rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError, LakeError, NoRoomError, TransientError
from lakeproof.events import counted
from lakeproof.lake.delta.log.commits import LogGapError
from lakeproof.lake.records.store import read_cut
from lakeproof.lake.records.views.cuts import ViewCut, newest_view_cut, one_refresh, view_path
from lakeproof.lake.records.views.definitions import applied_view
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark.failures import reading, reason_of
from lakeproof.lsn import Lsn
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError, Store
from lakeproof.views.difference import ViewTarget, differing
from lakeproof.views.drift import is_settled
from lakeproof.views.read_at import ReadAt

ViewStatus: TypeAlias = Literal["equal", "differs", "blocked"]


@dataclass(frozen=True, slots=True)
class ViewProof:
    """The result for a view, at the `positions` of its sources; `blocked`: nothing was compared, for the reason given."""

    status: ViewStatus
    reason: str | None = None
    positions: Mapping[str, Lsn] = field(default_factory=dict)


NEVER_REFRESHED = ViewProof("blocked", "it was never refreshed")


def was_refreshed(store: Store, view: str) -> bool:
    """True unless a view has no cut, which needs no session; of a damaged cut the audit shows what is wrong."""
    with suppress(LakeError):
        return newest_view_cut(store, view) is not None
    return True


def audit_view(session: SparkSession, store: Store, view: ViewConfig) -> ViewProof:
    """Compute the view anew at its cuts, and compare. `session` is the caller's own."""
    try:
        cut, settled = _newest(store, view.name)
        if cut is None:
            return NEVER_REFRESHED
        view = applied_view(store, view, cut)
        if not settled:
            return ViewProof("differs", "its table was written or moved since its newest cut; refresh it")
        own = {source: cut.sources[source] for source, _ in view.reads.values()}
        gone = [f"cut {n} of {s}" for s, n in own.items() if not store.exists(LakePaths(s).cut(n))]
        if gone:
            return ViewProof("blocked", f"{gone[0]}, from which it was computed, is not kept any more; refresh it")
        with reading(session, LogGapError) as attempt:
            cuts = {source: read_cut(SourceLake(store, LakePaths(source)), number) for source, number in own.items()}
            positions = {source: read.position for source, read in cuts.items()}
            fit(session, cut.row_bytes)
            tables = ReadAt(cuts, cut.views, cut.external).frames(session, store.location, view)
            target = ViewTarget(session, view, view_path(store, view.name), cut.delta_version)
            with differing(target, tables, may_place=True) as (_, difference):
                retracted, inserted = difference.retracted, difference.inserted
    except NoRoomError:
        raise
    except (TransientError, LakeError, ConfigError) as error:
        return ViewProof("blocked", f"{error.reason}; {error.remedy}")
    if attempt.error is not None:
        reason = f"its table, or a table that it reads, can't be read: {reason_of(attempt.error)}"
        return ViewProof(
            "blocked", f"{reason}; if it is its own, move {view_path(store, view.name)} away and refresh it"
        )
    if not retracted and not inserted:
        return ViewProof("equal", positions=positions)
    reason = f"it has {counted(retracted, 'row')} too many by its query, and lacks {counted(inserted, 'row')}"
    return ViewProof(
        "differs", f"{reason}; run `lakeproof refresh {view.name} --again`, which computes it whole", positions
    )


def _newest(store: Store, view: str) -> tuple[ViewCut | None, bool]:
    """Return a view's newest cut, and whether its table is as the cut names it.

    If it is, nobody is waited for: a refresh may take long, and touches nothing that a cut names. If it is not, one may
    stand between its commit and its cut; then TransientError is raised, and only without a refresh the table is at fault.
    """
    with suppress(LakeError, NotFoundError):
        cut = newest_view_cut(store, view)
        if cut is not None and is_settled(store, cut):
            return cut, True
    with one_refresh(store):
        cut = newest_view_cut(store, view)
        return cut, cut is not None and is_settled(store, cut)
