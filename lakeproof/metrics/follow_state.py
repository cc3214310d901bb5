"""The metrics of a compaction that goes on: counted from its events, and from the cuts and refreshes that it reports."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakeproof.events import Event
from lakeproof.metrics import definitions as m
from lakeproof.metrics.samples import Registry, Sample, TableLabels
from lakeproof.storage.times import time_of

if TYPE_CHECKING:
    # These modules load Spark, which whoever only serves metrics does not need.
    from lakeproof.lake.cycle.runner import CutReport
    from lakeproof.views.round import ViewReport


class FollowCounters:
    """Adds up what a follower of `sources` does; its methods are called by its threads."""

    def __init__(self, registry: Registry, name: str, sources: Iterable[str], tables: TableLabels) -> None:
        self._tables = tables
        self._changes = registry.counter(m.APPLIED_CHANGES)
        self._rows = registry.counter(m.APPLIED_ROWS)
        self._view_rows = registry.counter(m.VIEW_ROWS)
        self._retries = registry.counter(m.RETRIES).labels(name)
        self._cycle, self._commit_to_cut = registry.histogram(m.CYCLE), registry.histogram(m.COMMIT_TO_CUT)
        for source in sources:
            # A figure that is there from the beginning has a rate from the beginning.
            self._cycle.labels(source)
            self._commit_to_cut.labels(source)

    def observe(self, event: Event) -> None:
        """Count an event, if it is one of those that are counted."""
        if event.kind == "follow.again":
            self._retries.inc()
        elif event.kind == "compact.cut":
            source, committed = event.fields["source"], event.fields["commit_time"]
            self._cycle.labels(source).observe(event.fields["seconds"])
            if committed is not None and event.fields["changes"]:
                age_s = time.time() - time_of(committed).timestamp()
                self._commit_to_cut.labels(source).observe(max(0.0, age_s))

    def cuts(self, cuts: Mapping[str, Sequence[CutReport]]) -> None:
        for source, ended in cuts.items():
            for table, written in (item for cut in ended for item in cut.tables.items()):
                label = self._tables.label(source, table)
                self._changes.labels(source, label).inc(written.changes)
                self._rows.labels(source, label, "inserted").inc(written.inserted)
                self._rows.labels(source, label, "deleted").inc(written.deleted)

    def refreshed(self, views: Sequence[ViewReport]) -> None:
        for view in views:
            self._view_rows.labels(view.view, "inserted").inc(view.inserted)
            self._view_rows.labels(view.view, "retracted").inc(view.retracted)


class FollowReadiness:
    """Says if a follower has the leases, or waits for its turn; None means yes, else it is the reason."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._holds = False
        self._reason: str | None = "its first turn has not begun"

    def observe(self, event: Event) -> None:
        """Remember how the follower stands."""
        if event.kind in {"follow.turn", "follow.waits"}:
            self._holds, self._reason = event.kind == "follow.turn", None
        elif event.kind == "follow.again":
            self._holds, self._reason = False, event.message

    def __call__(self) -> Iterator[Sample]:
        yield Sample(m.LEASE_HELD, float(self._holds), {"name": self._name})

    def why_not_ready(self) -> str | None:
        """Return the error that has ended the last turn."""
        return self._reason
