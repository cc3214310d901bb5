"""A view that has drifted is due without a newer cut, and its refresh as a whole puts it right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config
from lakeproof.events import silent
from lakeproof.follow.views import ViewPace, ViewRefresher
from lakeproof.lake.records.views.cuts import newest_view_cut, view_path
from lakeproof.state.due_work import drifted_views, due_views, why_not_refresh
from lakeproof.state.status import lake_status
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.views.round import ViewReport
from tests.support.lake.lake_steps import make_config
from tests.support.views.view_shop import Shop

pytestmark = pytest.mark.spark
ROWS = [(0, "x"), (1, "x")]


class _Drifting:
    """A lake with two rows and view `a` over them; `drifts` are the ways to spoil what a refresh trusts."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        shop = Shop(spark, folder)
        self.spark = shop.spark
        self.config = shop.config.model_copy(update={"sources": make_config(folder / "lake").sources})
        self.store = open_store(self.config.location)
        shop.cut()
        shop.cut()
        refresh(self.config, "a", self.spark)

    def sql(self, text: str) -> None:
        """Write to the view's table as somebody else."""
        self.spark.newSession().sql(text.format(view=f"delta.`{view_path(self.store, 'a')}`"))

    def rows(self) -> list[tuple[object, ...]]:
        """The view's rows as they are stored, with all columns that are not hidden."""
        stored = self.spark.newSession().read.format("delta").load(view_path(self.store, "a"))
        return sorted(map(tuple, stored.drop("_lp_key", "_lp_dup").collect()))

    def computed_by(self, name: str, number: str) -> None:
        """Say of the view's newest cut that another version has computed it."""
        cut = newest_view_cut(self.store, "a")
        assert cut is not None
        other = replace(cut, engine={**cut.engine, name: number})
        self.store.put(LakePaths.view_cut(cut.number), other.to_bytes())

    def with_audit(self, audit_s: float) -> Config:
        """Return the configuration with another age at which the view is computed as a whole."""
        views = {n: v.model_copy(update={"audit_s": audit_s}) for n, v in self.config.views.items()}
        return self.config.model_copy(update={"views": views})


@pytest.fixture
def drifting(spark: SparkSession, tmp_path: Path) -> _Drifting:
    """Return the lake."""
    return _Drifting(spark, tmp_path)


def test_each_kind_of_drift_is_due_and_healed_without_a_cut(drifting: _Drifting) -> None:
    """Rows and columns that somebody else has written, another version of the engine, an audit."""
    config = drifting.config

    def healed(drift: Callable[[], None], reason: str, now: Config = config) -> None:
        assert due_views(config, ["a"]) == []
        drift()
        assert reason in drifted_views(now, lake_status(now))["a"]
        assert (due_views(now, ["a"]), why_not_refresh(now, "a")) == (["a"], None)
        (report,) = refresh(now, "a", drifting.spark)
        assert (report.stands_still, report.strategy) == (None, "full")
        assert reason in (report.reason or "")
        assert drifting.rows() == ROWS
        assert due_views(config, ["a"]) == []

    somebody = "written by somebody else"
    healed(lambda: drifting.sql("DELETE FROM {view} WHERE id = 0"), somebody)

    def other_columns() -> None:
        drifting.sql("ALTER TABLE {view} ADD COLUMN more int")
        drifting.sql("UPDATE {view} SET more = 7")

    healed(other_columns, somebody)
    before = newest_view_cut(drifting.store, "a")
    assert before is not None
    for name in ("spark", "delta"):
        drifting.computed_by(name, "0.0.1")
        assert f"another version: {name} 0.0.1, now" in drifted_views(config, lake_status(config))["a"]
        drifting.store.put(LakePaths.view_cut(before.number), before.to_bytes())
    healed(lambda: drifting.computed_by("lakeproof", "0.0.1"), "another version: lakeproof 0.0.1, now")
    healed(lambda: None, "computed as a whole", drifting.with_audit(0))


@pytest.mark.full
def test_a_follower_finds_drift_by_itself(drifting: _Drifting) -> None:
    """Nobody asks it, and no cut comes."""
    done: list[ViewReport] = []
    healed = threading.Event()

    def refreshed(views: Sequence[ViewReport]) -> None:
        done.extend(views)
        healed.set()

    pace = ViewPace(drift_look_s=0.2)
    with ViewRefresher(drifting.config, ["a"], drifting.spark, silent, refreshed, pace=pace) as refresher:
        drifting.sql("DELETE FROM {view} WHERE id = 1")
        assert healed.wait(300)
        refresher.check()
    assert drifting.rows() == ROWS
    assert done[0].inserted == 1


@pytest.mark.full
def test_where_refreshes_run_elsewhere_versions_here_say_nothing(drifting: _Drifting) -> None:
    """Each tick would find another version, and no refresh would change that."""
    drifting.computed_by("spark", "0.0.1")
    elsewhere = drifting.config.model_copy(update={"compute": object()})
    assert drifted_views(elsewhere, lake_status(drifting.config)) == {}
