"""Progress of a snapshot in Dagster: observations of the tables being copied, now and then, from the run's own thread."""

from __future__ import annotations

import dagster as dg

from assets.bootstrap import INTERVAL_S, SnapshotObservations
from lakeproof.events import Event
from lakeproof.names import TableName

ORDERS, LINES = TableName("shop", "orders"), TableName("shop", "lines")


def _progress(rows: int) -> Event:
    copying = {ORDERS.key: {"rows": rows, "bytes": 10 * rows, "pages": 1}, "shop/other": {"rows": 1}}
    fields = {"rows": 7, "bytes": 70, "tables": 2, "tables_done": 1, "rows_per_s": 5, "seconds_left": 12.5}
    return Event("bootstrap.progress", "…", fields | {"copying": copying})


def test_only_the_newest_is_observed_and_not_more_often_than_the_interval() -> None:
    """Only the chosen tables that are being copied are observed; other events are ignored."""
    seen: list[dg.AssetObservation] = []
    now = [0.0]
    progress = SnapshotObservations("shop", [ORDERS, LINES], seen.append, lambda: now[0])
    progress.take(_progress(1))
    progress.observe()
    assert seen == []
    now[0] = INTERVAL_S
    progress.take(_progress(2))
    progress.take(Event("bootstrap.table", "…"))
    progress.observe()
    progress.observe()
    [observation] = seen
    assert observation.asset_key.path == ["snapshot", "shop", "shop", "orders"]
    actual = {name: value.value for name, value in observation.metadata.items()}
    assert actual["rows"] == 2
    assert (actual["snapshot_rows"], actual["rows_per_s"], actual["seconds_left"]) == (7, 5, 12.5)
    progress.take(_progress(3))
    progress.observe()
    assert len(seen) == 1
    now[0] = 2 * INTERVAL_S
    progress.observe()
    assert len(seen) == 2
