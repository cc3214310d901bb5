"""A stack of views when something is wrong with one, an external table through its life, and a slow view beside others."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeproof.commands import refresh as step
from lakeproof.commands.refresh import apply_preview, preview
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.errors import LakeError
from lakeproof.events import Event, silent
from lakeproof.follow.views import ViewPace, ViewRefresher
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.views.cuts import newest_view_cut
from lakeproof.names import TableName
from lakeproof.state.due_work import why_not_refresh
from lakeproof.state.status import lake_status
from lakeproof.views import round as view_round
from lakeproof.views.audit import audit_view
from lakeproof.views.refresh import refresh_view
from lakeproof.views.round import ViewReport
from tests.support.views.view_lake import ViewLake

pytestmark = pytest.mark.spark
ITEMS = {"items": ("shop", TableName("public", "items"))}


class Shop(ViewLake):
    """A lake with one cut, and views that a test adds."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder, {}, "1")
        self.folder = folder
        self.change("items", "parts", "kinds", rows=20)
        source = SourceConfig(name="shop", dsn=SecretStr("host=nowhere dbname=app"), publication="p", slot="s")
        self.config = Config(path=folder / "w.yaml", lake=self.config.lake, sources={"shop": source})

    def view(self, name: str, sql: str, *others: str, **external: ExternalTable) -> None:
        """Add a view of `items`, of other views, or of external tables."""
        file = self.folder / f"{name}.sql"
        file.write_text(sql, encoding="utf-8")
        reads = ITEMS if " items" in sql else {}
        view = ViewConfig(
            name=name, sql_file=file, reads=reads, views={other: other for other in others}, external=external
        )
        self.config = self.config.model_copy(update={"views": {**self.config.views, name: view}})

    def still(self, view: str | None = None) -> dict[str, str | None]:
        """Refresh all views, or one, and return why each stands still."""
        return {report.view: report.stands_still for report in step.refresh(self.config, view, self.spark)}

    def answer(self, view: str) -> list[Any]:
        """Return a view's rows, read without Spark at the newest cuts."""
        return sorted(map(str, read_lake(self.config).view(view).arrow().to_pylist()))


def test_a_fault_holds_what_depends_on_it_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """The reason names the view below; a view is refreshed with those that it reads, and once they are right it goes on."""
    shop = Shop(spark, tmp_path)
    shop.view("roof", "SELECT count(*) AS n FROM wall", "wall")
    shop.view("wall", "SELECT nothing FROM ground", "ground")
    shop.view("ground", "SELECT id FROM items")
    shop.view("beside", "SELECT id FROM ground WHERE id > 0", "ground")
    still = shop.still()
    assert (still["ground"], still["beside"]) == (None, None)
    assert "UNRESOLVED_COLUMN" in (still["wall"] or "")
    assert (still["roof"] or "").startswith("view wall, which it reads, stands still: view wall: ")
    assert list(shop.still("roof")) == ["ground", "wall", "roof"]
    (shop.folder / "wall.sql").write_text("SELECT id FROM ground", encoding="utf-8")
    assert set(shop.still("roof").values()) == {None}
    assert shop.answer("roof") == [str({"n": len(shop.answer("ground"))})]
    assert shop.answer("beside") == shop.answer("ground")


@pytest.mark.full
def test_an_external_table_is_pinned_and_watched(spark: SparkSession, tmp_path: Path) -> None:
    """It is missing, no Delta table, written by others, vacuumed, and made again; other views go on all the while."""
    shop = Shop(spark, tmp_path)
    place = str(tmp_path / "rates")
    shop.view("plain", "SELECT id FROM items")
    shop.view("priced", "SELECT i.id, r.rate FROM items i JOIN r ON r.id = i.id", r=ExternalTable("delta", place))
    shop.view("named", "SELECT count(*) AS n FROM items CROSS JOIN r", r=ExternalTable("catalog", "default.lp_rates"))
    spark.sql("DROP TABLE IF EXISTS default.lp_rates")
    frame = shop.spark.createDataFrame([(i, i % 7) for i in range(1, 40)], "id int, rate int").coalesce(1)
    still = shop.still()
    assert still["plain"] is None
    assert (still["priced"] or "").startswith(f"external table {place}: there is no Delta table in this place")
    assert (still["named"] or "").startswith("external table default.lp_rates: it can't be read")
    frame.write.parquet(place)
    assert "CONVERT TO DELTA" in (shop.still()["priced"] or "")
    (tmp_path / "rates").rename(tmp_path / "parquet")
    frame.write.format("delta").save(place)
    spark.sql(f"CREATE TABLE default.lp_rates USING delta LOCATION '{place}'")
    try:
        assert set(shop.still().values()) == {None}
        _go_on(shop, place)
    finally:
        spark.sql("DROP TABLE default.lp_rates")


def _go_on(shop: Shop, place: str) -> None:
    assert why_not_refresh(shop.config, None) is not None
    shop.spark.sql(f"UPDATE delta.`{place}` SET rate = 8 WHERE id = 3 OR id = 5")  # noqa: S608  a place of the test's
    assert lake_status(shop.config).views["priced"].behind == {"shop": 0, place: 1}
    assert (why_not_refresh(shop.config, "priced"), why_not_refresh(shop.config, "named")) == (None, None)
    assert why_not_refresh(shop.config, "plain") is not None
    assert set(shop.still().values()) == {None}
    assert why_not_refresh(shop.config, None) is not None
    cut = newest_view_cut(shop.source.store, "priced")
    assert cut is not None
    assert (cut.strategy, cut.external[place].delta_version) == ("linear", 1)
    _check_priced(shop, place)
    # Files of the version that the view was computed from are gone.
    shop.spark.sql(f"UPDATE delta.`{place}` SET rate = 9 WHERE id < 30")  # noqa: S608  as above
    shop.spark.sql(f"OPTIMIZE delta.`{place}`")
    shop.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    shop.spark.sql(f"VACUUM delta.`{place}` RETAIN 0 HOURS")
    assert audit_view(shop.spark.newSession(), shop.source.store, shop.config.views["priced"]).status == "blocked"
    assert set(shop.still().values()) == {None}
    _check_priced(shop, place)
    _go_on_without_a_log(shop, place)
    # Another table in the same place.
    Path(place).rename(shop.folder / "old")
    assert "there is no Delta table" in (shop.still()["priced"] or "")
    again = shop.spark.createDataFrame([(i, 1) for i in range(1, 9)], "id int, rate int")
    for _ in range(5):
        again.write.format("delta").mode("append").save(place)
    assert set(shop.still().values()) == {None}
    cut = newest_view_cut(shop.source.store, "priced")
    assert cut is not None
    assert (cut.strategy, cut.reason) == ("full", f"external table {place} is another table than then")
    _check_priced(shop, place)
    # The same with the same newest version: its id alone differs.
    version = cut.external[place].delta_version
    shutil.rmtree(place)
    for _ in range(version + 1):
        again.where("id > 3").write.format("delta").mode("append").save(place)
    assert lake_status(shop.config).views["priced"].behind == {"shop": 0, place: 1}
    assert why_not_refresh(shop.config, "priced") is None
    assert set(shop.still().values()) == {None}
    assert why_not_refresh(shop.config, "priced") is not None
    _check_priced(shop, place)


def _go_on_without_a_log(shop: Shop, place: str) -> None:
    """Refresh after the log of the version that the view was computed from is gone, as its retention leaves it."""
    table = DeltaTable.forPath(shop.spark, place)
    before = newest_version(place)
    for rate in range(10):
        table.update("id < 9", {"rate": str(rate)})
    checkpoint = max(Path(place, "_delta_log").glob("*.checkpoint.parquet")).name[:20]
    assert int(checkpoint) > before
    for file in Path(place, "_delta_log").iterdir():
        if file.name.lstrip(".")[:20] < checkpoint:
            file.unlink()
    assert set(shop.still().values()) == {None}
    cut = newest_view_cut(shop.source.store, "priced")
    assert cut is not None
    reason = f"external table {place}: its version at the view's cut is not kept any more"
    assert (cut.strategy, cut.reason) == ("full", reason)
    _check_priced(shop, place)


def _check_priced(shop: Shop, place: str) -> None:
    items = shop.rows["items"]
    rates = shop.spark.read.format("delta").load(place).collect()
    expected = [str({"id": row["id"], "rate": row["rate"]}) for row in rates if row["id"] in items]
    assert shop.answer("priced") == sorted(expected)


@pytest.mark.full
def test_a_view_over_a_view_and_an_external_table_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """It is computed over the views as they stand; a newer external version is named, different ones are refused."""
    shop, place = Shop(spark, tmp_path), str(tmp_path / "rates")
    rates = ExternalTable("delta", place)
    shop.spark.range(1, 40).selectExpr("id", "id % 7 AS rate").coalesce(1).write.format("delta").save(place)
    shop.view("ground", "SELECT id, grp FROM items")
    shop.view("top", "SELECT g.id, r.rate FROM ground g JOIN r ON r.id = g.id", "ground", r=rates)
    assert set(shop.still().values()) == {None}
    for number, second in enumerate(("SELECT g.id, r.rate + 1 AS rate", "SELECT g.id, r.rate + 2 AS rate, g.grp")):
        (tmp_path / "top.sql").write_text(f"{second} FROM ground g JOIN r ON r.id = g.id", encoding="utf-8")
        shown = preview(shop.config, "top", shop.spark)
        assert shown.inserted == shown.retracted == len(shop.rows["items"])
        if number:
            DeltaTable.forPath(shop.spark, place).update("id < 20", {"rate": "50"})
        applied = apply_preview(shop.config, "top", shop.spark, name=shown.preview)
        assert applied.moved == (f"external table {place} has another version since" if number else None)
        cut, ground = (newest_view_cut(shop.source.store, view) for view in ("top", "ground"))
        assert cut is not None
        assert ground is not None
        assert cut.strategy == ("full" if number else "staged")
        assert (cut.external[place].delta_version, cut.views["ground"].delta_version) == (number, ground.delta_version)
        assert audit_view(shop.spark.newSession(), shop.source.store, shop.config.views["top"]).status == "equal"
        _check_top(shop, place, number)
    shop.view("beside", "SELECT i.id, r.rate FROM items i JOIN r ON r.id = i.id", r=rates)
    shop.view("top", "SELECT b.id, r.rate FROM beside b JOIN r ON r.id = b.id", "beside", r=rates)
    assert shop.still("beside") == {"beside": None}
    DeltaTable.forPath(shop.spark, place).update("id > 20", {"rate": "60"})
    preview(shop.config, "top", shop.spark)
    apply_preview(shop.config, "top", shop.spark)
    top, beside = (newest_view_cut(shop.source.store, view) for view in ("top", "beside"))
    assert top is not None
    assert beside is not None
    assert top.external == beside.external, "at the version of the view that it reads, not at the newest"
    shop.view("ground", "SELECT i.id, r.rate FROM items i JOIN r ON r.id = i.id", r=rates)
    preview(shop.config, "ground", shop.spark)
    apply_preview(shop.config, "ground", shop.spark)
    shop.view("top", "SELECT id FROM beside UNION ALL SELECT id FROM ground", "beside", "ground")
    with pytest.raises(LakeError, match="computed from different states of it"):
        preview(shop.config, "top", shop.spark)


def _check_top(shop: Shop, place: str, number: int) -> None:
    rates = {row["id"]: row["rate"] for row in shop.spark.read.format("delta").load(place).collect()}
    expected = [{"id": key, "rate": rates[key] + number + 1} for key in shop.rows["items"]]
    if number:
        expected = [row | {"grp": shop.rows["items"][row["id"]][1]} for row in expected]
    assert shop.answer("top") == sorted(map(str, expected))


@pytest.mark.full
def test_a_slow_view_keeps_back_only_what_needs_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one ends after all others have been reported; no more than `views_at_once` keep frames at a time."""
    shop = Shop(spark, tmp_path)
    shop.view("over_slow", "SELECT id FROM a_slow", "a_slow")
    shop.view("a_slow", "SELECT id FROM items")
    quick = [f"quick{number}" for number in range(5)]
    for name in quick:
        shop.view(name, "SELECT grp, count(*) AS n FROM items GROUP BY grp")
    reported: list[str] = []
    others_ended = threading.Event()
    at_work, most = set[str](), [0]

    def report(event: Event) -> None:
        reported.append(str(event.fields.get("view", event.kind)))
        if set(quick) <= set(reported):
            others_ended.set()

    def slow(session: SparkSession, store: Any, view: ViewConfig, *arguments: Any) -> Any:
        at_work.add(view.name)
        most[0] = max(most[0], len(at_work))
        try:
            if view.name == "a_slow":
                assert others_ended.wait(300), "the others were kept back"
            return refresh_view(session, store, view, *arguments)
        finally:
            at_work.discard(view.name)

    monkeypatch.setattr(view_round, "refresh_view", slow)  # inside: a view that is slow until the others have ended
    with _peak(spark) as together:
        step.refresh(shop.config, None, shop.spark, report)
    assert (reported[0], reported[-2:]) == ("view.begin", ["a_slow", "over_slow"])
    assert most == [2]
    shop.change("items")
    monkeypatch.undo()
    one = shop.config.model_copy(update={"views_at_once": 1})
    with _peak(spark) as alone:
        step.refresh(one, None, shop.spark)
    assert together[0] <= 2 * max(1, alone[0])


@pytest.mark.full
def test_a_slow_view_of_a_follower_lets_the_others_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come to newer cuts while it is at work; what it reads, and what reads it, waits; all end at the newest cut."""
    shop = Shop(spark, tmp_path)
    shop.view("a_slow", "SELECT id FROM below", "below")
    shop.view("below", "SELECT id, grp FROM items")
    shop.view("over_slow", "SELECT count(*) AS n FROM a_slow", "a_slow")
    shop.view("quick", "SELECT grp, count(*) AS n FROM items GROUP BY grp")
    assert set(shop.still().values()) == {None}
    begun, may_end, others_moved = threading.Event(), threading.Event(), threading.Event()
    finished: list[tuple[str, int]] = []

    def slow(session: SparkSession, store: Any, view: ViewConfig, *arguments: Any) -> Any:
        if view.name == "a_slow":
            begun.set()
            assert may_end.wait(300), "the others were kept back"
        return refresh_view(session, store, view, *arguments)

    def refreshed(views: Sequence[ViewReport]) -> None:
        finished.extend((view.view, int(view.sources["shop"][0])) for view in views)
        if ("quick", shop.cuts) in finished and not may_end.is_set():
            others_moved.set()

    # inside: a view that is slow until the others have moved on
    monkeypatch.setattr(view_round, "refresh_view", slow)
    shop.change("items")
    views, pace = list(shop.config.views), ViewPace(slow_s=0.0)
    with ViewRefresher(shop.config, views, shop.spark, silent, refreshed, pace=pace) as refresher:
        refresher.ask()
        assert begun.wait(120)
        first = shop.cuts
        shop.change("items")
        refresher.ask()
        assert others_moved.wait(120), finished
        assert finished == [("quick", first + 1)], "what is at work, and what it reads, is left alone"
        may_end.set()
        _wait(lambda: ("over_slow", first + 1) in finished)
        refresher.check()
    cuts = {name: newest_view_cut(shop.source.store, name) for name in shop.config.views}
    assert {int(cut.sources["shop"]) for cut in cuts.values() if cut is not None} == {first + 1}
    refreshes = {name: cut.refresh for name, cut in cuts.items() if cut is not None}
    assert refreshes["a_slow"] == refreshes["below"] == refreshes["over_slow"] != refreshes["quick"]
    assert shop.answer("a_slow") == [
        str({"id": key}) for key in sorted(shop.rows["items"], key=lambda k: str({"id": k}))
    ]
    assert shop.answer("over_slow") == [str({"n": len(shop.rows["items"])})]


def _wait(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def _peak(spark: SparkSession) -> Iterator[list[int]]:
    """Yield the most frames that views keep at a time in the block, sampled; none is left afterwards."""
    peak, ended = [0], threading.Event()

    def kept() -> int:
        # Delta keeps the states of tables for itself.
        rdds = spark.sparkContext._jsc.getPersistentRDDs()
        return sum("Delta Table State" not in str(rdd.name()) for rdd in rdds.values())

    def sample() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], kept() - before)

    before = kept()
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        ended.set()
        sampler.join()
    assert kept() == before
