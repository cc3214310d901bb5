"""Maintenance of views ends like any other step if it is asked to stop, and leaves views that are busy."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.errors import TransientError
from lakeproof.events import RunControl, Stop
from lakeproof.lake.records.views.cuts import ViewCut, one_refresh, put_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.retention import SpaceReclaimed
from lakeproof.names import CycleNumber
from lakeproof.storage.local import KernelLock
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.storage.times import time_of
from lakeproof.views.maintain import maintain_views

NOW = time_of("2026-11-22T00:00:00Z")
NO_SPARK = cast("SparkOnDemand", SimpleNamespace(everywhere=False))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Return a configuration with a source and a view, over an empty lake."""
    (tmp_path / "v.sql").write_text("SELECT * FROM o")
    path = tmp_path / "lakeproof.yaml"
    path.write_text(
        "lake: lake\nsources:\n  shop:\n    dsn: host=nowhere dbname=shop\n"
        "views:\n  v: {sql: v.sql, reads: {o: shop/shop.orders}}\n"
    )
    return load(path)


@pytest.mark.parametrize("busy", [False, True])
def test_maintenance_ends_at_the_step_where_it_is_asked_to_stop(config: Config, *, busy: bool) -> None:
    """Stopped while it waits for a refresh, it ends with an error rather than with success."""
    stop = Stop()
    stop.request()
    refreshing = one_refresh(open_store(config.lake)) if busy else nullcontext()
    with refreshing, pytest.raises(TransientError, match="it was asked to stop"):
        maintain_views(config, "shop", NO_SPARK, RunControl(stop=stop), now=NOW)


def test_views_that_stay_busy_are_left_to_the_next_run(config: Config) -> None:
    """A refresh in progress is no failure of the source's own maintenance."""
    with one_refresh(open_store(config.lake)):
        done = maintain_views(config, "shop", NO_SPARK, RunControl(), now=NOW, wait_s=0.0)
    assert (done.optimized, done.freed) == ((), SpaceReclaimed())
    assert "another process is refreshing or maintaining views" in str(done.busy)


def test_without_its_lock_nothing_of_a_view_is_removed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store another process may have taken over unnoticed, and a file that no cut names may be its own."""

    def lost(_lock: KernelLock) -> None:
        raise TransientError("views", "its lock was not renewed in time", "start again")

    monkeypatch.setattr(KernelLock, "check", lost)  # inside: a lock in a folder is never lost
    store = open_store(config.lake)
    keys = [LakePaths.view_cut(_cut(store, number).number) for number in (1, 2)]
    done = maintain_views(config, "shop", NO_SPARK, RunControl(), now=NOW)
    assert done.busy == "its lock was not renewed in time"
    assert all(map(store.exists, keys))
    monkeypatch.undo()
    done = maintain_views(config, "shop", NO_SPARK, RunControl(), now=NOW)
    assert (done.busy, done.freed.files) == (None, 1)
    assert list(map(store.exists, keys)) == [False, True]


def _cut(store: Store, number: int) -> ViewCut:
    """A cut of the view, long ago, whose table was moved away."""
    when = "2026-01-01T00:00:00Z"
    cut = ViewCut(
        number=CycleNumber(number),
        view="v",
        delta_version=number,
        definition_sha256="0" * 64,
        sources={"shop": CycleNumber(number)},
        inserted=1,
        retracted=0,
        created_at=when,
        refresh=number,
        strategy="full",
        reason=None,
        changed_rows=None,
        rows_read=0,
        whole_at=when,
        engine={},
        replaced_sha256=None,
    )
    put_cut(store, cut)
    return cut
