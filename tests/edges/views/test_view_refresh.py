"""A view is its query's answer after every refresh, whatever was there before; each refresh writes the difference only."""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError, LakeError, TransientError
from lakeproof.failpoints import watched
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.commits import newest_version, read_commit
from lakeproof.lake.records.views.cuts import ViewCut, newest_view_cut, newest_view_cut_number, one_refresh, put_cut
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.open import open_store
from lakeproof.views.cycle import app_id
from lakeproof.views.maintain import kept_cuts, optimize_view, unneeded_view_files
from lakeproof.views.read_at import ViewInputs
from lakeproof.views.refresh import refresh_view
from tests.support.spark.fix_lake import SPARK

pytestmark = pytest.mark.spark

SALES = TableName("public", "sales")
_NESTED = "nested"
_ABOVE_0 = "SELECT product, amount FROM sales WHERE NOT amount < 0"
_SCHEMA = "product string, amount double, at timestamp"


class Shop:
    """A lake with one view over one table `sales`, whose rows a test sets as it likes."""

    def __init__(self, spark: SparkSession, folder: Path, sql: str) -> None:
        self.spark = spark.newSession()
        self.folder = folder
        self.file = folder / "view.sql"
        self.file.write_text(sql, encoding="utf-8")
        self.view = ViewConfig(name="revenue", sql_file=self.file, reads={"sales": ("shop", SALES)})
        self.lake = str(folder / "lake")
        self.path = str(folder / "lake" / "views" / "revenue")
        self.cuts = 0

    def refresh(self, rows: list[tuple[Any, ...]] | DataFrame) -> ViewCut:
        """Refresh over these sales, at the source's next cut."""
        self.cuts += 1
        frame = rows if isinstance(rows, DataFrame) else self.spark.createDataFrame(rows, _SCHEMA)
        sources: Mapping[str, CycleNumber] = {"shop": CycleNumber(self.cuts)}
        store = open_store(self.lake)
        with one_refresh(store) as lock:
            return refresh_view(self.spark, store, self.view, ViewInputs({"sales": frame}, sources, self.cuts), lock)

    def optimize(self, cut: ViewCut, small_files: int) -> ViewCut | None:
        """Compact the view's small files; `cut` is its newest."""
        store = open_store(self.lake)
        with one_refresh(store) as lock:
            return optimize_view(self.spark, store, cut, small_files, lock)

    def stored(self) -> DataFrame:
        """The view's Delta table as it is."""
        return self.spark.read.format("delta").load(self.path)

    def rows(self) -> Counter[Any]:
        """The view's rows without hidden columns, as text."""
        return Counter(tuple(map(str, r)) for r in self.stored().drop("_lp_key", "_lp_dup", _NESTED).collect())


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    """A bag: the sales above 0 without their time."""
    return Shop(spark, tmp_path, f"{_ABOVE_0};\n-- a last comment")


@pytest.fixture(params=["here", pytest.param("by Spark", marks=pytest.mark.full)])
def either(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Shop:
    """The same view, compared in this process, or by Spark, which has to compare nested columns."""
    nested = "" if request.param == "here" else ", named_struct('p', product) AS nested"
    return Shop(spark, tmp_path, _ABOVE_0.replace("amount", f"amount{nested}", 1))


def sales(*pairs: tuple[str | None, float | None]) -> list[tuple[Any, ...]]:
    """Rows of the table `sales`."""
    return [(product, amount, None) for product, amount in pairs]


def test_each_refresh_writes_the_signed_difference_only(either: Shop) -> None:
    """Equal rows are counted, not merged: k of n come and go."""
    first = either.refresh(sales(("a", 1.0), ("a", 1.0), ("a", 1.0), ("b", None), (None, 2.0), ("b", -1.0)))
    assert (first.inserted, first.retracted, first.delta_version) == (4, 0, 0)
    second = either.refresh(sales(("a", 1.0), (None, 2.0), (None, 2.0), ("c", 3.0)))
    assert (second.inserted, second.retracted, second.delta_version) == (2, 2, 1)
    assert either.rows() == Counter({("a", "1.0"): 1, ("None", "2.0"): 2, ("c", "3.0"): 1})
    assert either.stored().select("_lp_key", "_lp_dup").distinct().count() == 4
    commit = read_commit(either.path, 1)
    assert commit is not None
    assert commit.txns == {app_id("revenue"): int(second.number)}


def test_nothing_to_correct_makes_no_commit_and_the_cut_says_so(shop: Shop) -> None:
    """The cut moves on with its sources and names the version that was there."""
    first = shop.refresh(sales(("a", 1.0)))
    second = shop.refresh(sales(("a", 1.0), ("z", -5.0)))
    assert (second.inserted, second.retracted) == (0, 0)
    assert (second.delta_version, newest_version(shop.path)) == (first.delta_version, 0)
    assert second.number > first.number
    assert newest_view_cut(open_store(shop.lake), "revenue") == second
    assert second.sources == {"shop": 2}


def test_an_empty_answer_makes_an_empty_table(shop: Shop) -> None:
    """The view's first result may be empty, too."""
    assert shop.refresh(sales()).delta_version == 0
    assert shop.rows() == Counter()
    shop.refresh(sales(("a", 1.0)))
    assert shop.refresh(sales()).retracted == 1
    assert shop.rows() == Counter()


def test_values_that_spark_groups_as_one_are_distinguished(either: Shop) -> None:
    """-0.0 and 0.0 are two rows, NaN is one value, the last bit counts, NULL is not the empty text."""
    odd = [("a", 0.0), ("a", -0.0), ("a", math.nan), ("a", math.nan), ("a", 0.1), ("", 0.1), (None, 0.1)]
    either.refresh(sales(*odd))
    changed = either.refresh(sales(*odd[1:], ("a", math.nextafter(0.1, 1)), ("e\u0301", 1.0), ("é", 1.0)))
    assert (changed.inserted, changed.retracted) == (3, 1)
    assert either.rows()[("a", "0.0")] == 0
    assert either.rows()[("a", "-0.0")] == 1
    assert either.rows()[("a", "nan")] == 2


# Done one after the other to the same table, which has healed before the next.
_DAMAGES = (
    "UPDATE v SET amount = 7 WHERE product = 'a'",
    "DELETE FROM v WHERE product = 'b'",
    "INSERT INTO v SELECT * FROM v WHERE product = 'a'",
    "INSERT INTO v SELECT 'x', 1D, _lp_key, _lp_dup + 1 FROM v",
    "UPDATE v SET _lp_key = NULL",
    "UPDATE v SET _lp_dup = 1",
    "DELETE FROM v",
)


@pytest.mark.parametrize(
    "damages", [_DAMAGES[2:4], pytest.param(_DAMAGES, marks=pytest.mark.full)], ids=["some", "all"]
)
def test_a_damaged_view_heals(shop: Shop, damages: tuple[str, ...]) -> None:
    """A foreign write into the Delta table is corrected by the next refresh."""
    rows = sales(("a", 1.0), ("a", 1.0), ("b", 2.0), ("c", 3.0))
    shop.refresh(rows)
    before = shop.rows()
    for damage in damages:
        version = newest_version(shop.path)
        shop.spark.sql(damage.replace(" v", f" delta.`{shop.path}`"))
        assert newest_version(shop.path) == version + 1, f"{damage} is a commit"
        shop.refresh(rows)
        assert shop.rows() == before, damage
    assert shop.refresh(rows).inserted == 0


def _refresh_and_die(folder: str) -> None:
    """Run a refresh in its own process, killed at the failpoint that the environment names."""
    from lakeproof.lake.spark.session import build_session

    shop = Shop(build_session(SPARK, "killed"), Path(folder), "SELECT product, amount FROM sales WHERE NOT amount < 0")
    shop.cuts = 1
    shop.refresh(sales(("a", 1.0), ("b", 2.0)))


def _killed(place: Shop, failpoint: str) -> None:
    """A refresh in its own process, with a JVM of its own, which the system ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPROOF_FAILPOINT", failpoint)
        process = multiprocessing.get_context("spawn").Process(target=_refresh_and_die, args=(str(place.folder),))
        process.start()
        process.join(600)
        code = process.exitcode
        process.kill()
        process.join()
    assert code == -9


def _interrupted(place: Shop, failpoint: str) -> None:
    """Run the same refresh in this process, and interrupt it there."""

    def interrupt(name: str) -> None:
        if name == failpoint:
            raise KeyboardInterrupt(name)

    with watched(interrupt), pytest.raises(KeyboardInterrupt, match=failpoint):
        place.refresh(sales(("a", 1.0), ("b", 2.0)))
    place.cuts -= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "failpoint"),
    [
        (_interrupted, "cycle.after_tables"),
        pytest.param(_killed, "cycle.after_tables", marks=pytest.mark.full),
        pytest.param(_killed, "cycle.after_sync", marks=pytest.mark.full),
    ],
)
def test_a_refresh_killed_before_its_cut_is_made_good_by_the_next(
    shop: Shop, end: Callable[[Shop, str], None], failpoint: str
) -> None:
    """The commit without a cut is restored over, and the refresh made again; no number is given twice."""
    shop.refresh(sales(("a", 1.0)))
    end(shop, failpoint)
    assert newest_version(shop.path) == 1, "committed"
    assert newest_view_cut_number(open_store(shop.lake)) == 1, "without a cut"
    result = shop.refresh(sales(("b", 2.0), ("b", 2.0)))
    assert (result.number, result.delta_version, result.inserted, result.retracted) == (3, 3, 2, 1)
    assert shop.rows() == Counter({("b", "2.0"): 2})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT product AS _lp_x FROM sales", "begins with _lp_"),
        ("SELECT product AS __LP_net FROM sales", "begins with __lp_"),
        ("SELECT product, amount AS Product FROM sales", "same name"),
        ("SELECT nothing FROM sales", "UNRESOLVED_COLUMN"),
        ("SELEC product FROM sales", "PARSE_SYNTAX_ERROR"),
        ("DROP TABLE sales", "it is a command"),
        ("SELECT 1) UNION ALL (SELECT 2; DROP TABLE sales", "PARSE_SYNTAX_ERROR"),
        ("SELECT CAST(product AS int) AS n FROM sales", "the query failed with CAST_INVALID_INPUT"),
        ("SELECT NULL AS n FROM sales", "no exact form"),
        ("SELECT INTERVAL '1' DAY AS n FROM sales", "no exact form"),
        ("SELECT product FROM other_table", "TABLE_OR_VIEW_NOT_FOUND"),
        ("  \n;", "no SQL"),
    ],
)
def test_a_definition_that_can_not_be_kept_is_refused(
    spark: SparkSession, tmp_path: Path, sql: str, message: str
) -> None:
    """The message names the view, in Spark's short words and without a value; nothing is written."""
    shop = Shop(spark, tmp_path, sql)
    with pytest.raises(ConfigError) as refused:
        shop.refresh(sales(("secret value", 1.0)))
    assert message in str(refused.value)
    assert "revenue" in refused.value.thing
    assert "secret value" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert newest_version(shop.path) == -1
    assert newest_view_cut_number(open_store(shop.lake)) == 0


def test_a_query_with_other_columns_than_its_table_is_refused(shop: Shop) -> None:
    """Replacing a view's columns is another road; this one changes nothing and says so."""
    shop.refresh(sales(("a", 1.0)))
    shop.file.write_text("SELECT product, CAST(amount AS int) AS amount FROM sales", encoding="utf-8")
    with pytest.raises(ConfigError, match="other columns than its table has: amount"):
        shop.refresh(sales(("a", 1.0)))
    assert newest_version(shop.path) == 0


@pytest.mark.full
def test_another_query_with_the_same_columns_is_corrected(shop: Shop) -> None:
    """The new cut has another hash."""
    first = shop.refresh(sales(("a", 1.0), ("b", 2.0)))
    shop.file.write_text("SELECT product, amount * 2 AS amount FROM sales", encoding="utf-8")
    second = shop.refresh(sales(("a", 1.0), ("b", 2.0)))
    assert second.definition_sha256 != first.definition_sha256
    assert shop.rows() == Counter({("a", "2.0"): 1, ("b", "4.0"): 1})


def test_nested_and_odd_columns_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Arrays, structs, maps, decimals, binary, and names that Parquet refuses."""
    shop = Shop(
        spark,
        tmp_path,
        "WITH s AS (SELECT * FROM sales) SELECT product `of the;product`, array(amount, NULL) a, "
        "named_struct('x', product, 'y z', 1) s, map(product, amount) m, CAST(amount AS decimal(20,10)) d, "
        "CAST(product AS binary) b, at `a.t` FROM s ORDER BY product",
    )
    shop.refresh(sales(("a", 0.0), ("b", 1.5)))
    result = shop.refresh(sales(("a", -0.0), ("b", 1.5)))
    assert (result.inserted, result.retracted) == (1, 1)
    assert shop.refresh(sales(("a", -0.0), ("b", 1.5))).inserted == 0


@pytest.mark.full
def test_views_share_one_sequence_of_numbers(shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    """A number can't be taken twice."""
    shop.refresh(sales(("a", 1.0)))
    other = Shop(spark, tmp_path, "SELECT 1 AS one")
    other.view = ViewConfig(name="one", sql_file=other.file, reads={})
    assert other.refresh(sales()).number == 2
    cut = newest_view_cut(open_store(shop.lake), "revenue")
    assert cut is not None
    assert cut.number == 1
    with pytest.raises(TransientError, match="another process"):
        put_cut(open_store(shop.lake), replace(cut, inserted=cut.inserted + 1))


def test_a_cut_reads_back_and_a_damaged_one_is_refused(shop: Shop) -> None:
    """Each field that is missing or wrong is named."""
    cut = shop.refresh(sales(("a", 1.0)))
    assert ViewCut.from_bytes(cut.to_bytes(), "a cut") == cut
    for broken in (
        b"",
        b"[]",
        cut.to_bytes().replace(b'"shop":1', b'"shop":"1"'),
        cut.to_bytes().replace(b"/1", b"/9"),
    ):
        with pytest.raises(LakeError, match="a cut"):
            ViewCut.from_bytes(broken, "a cut")


def test_one_process_refreshes_at_a_time(tmp_path: Path) -> None:
    """Delta on a local disk has no lock between processes."""
    store = open_store(tmp_path / "lake")
    with one_refresh(store), pytest.raises(TransientError, match="another process"), one_refresh(store):
        pass
    with one_refresh(store):
        pass


def _fragments(shop: Shop) -> ViewCut:
    """A view of three refreshes, each of which left a file."""
    result = [shop.refresh(sales(*((name, 1.0) for name in "abc"[: number + 1]))) for number in range(3)]
    assert len(table_files(shop.path, result[-1].delta_version).newest) == 3
    return result[-1]


@pytest.mark.full
def test_a_view_whose_files_were_put_together_is_the_same_answer(shop: Shop) -> None:
    """The cuts that are kept stay readable, what only older ones needed goes, and the next refresh goes on from there."""
    last, before = _fragments(shop), shop.rows()
    store = open_store(shop.lake)
    result = shop.optimize(last, 2)
    assert result is not None
    assert (result.delta_version, result.sources, result.inserted, result.retracted) == (3, last.sources, 0, 0)
    assert newest_view_cut(store, "revenue") == result
    assert shop.rows() == before
    assert shop.optimize(result, 2) is None
    now = datetime.now(timezone.utc)
    kept = kept_cuts(store, {"revenue": 3600.0}, now)
    assert (kept.old, kept.oldest["revenue"].number, list(unneeded_view_files(store, kept, {}))) == ([], 1, [])
    assert kept_cuts(store, {"another": 0.0}, now).old == []
    kept = kept_cuts(store, {"revenue": 0.0}, now)
    assert len(kept.old) == 3
    assert kept.oldest == kept.newest == {"revenue": result}
    gone = [Path(place) for files in unneeded_view_files(store, kept, {}) for place, _ in files]
    assert len([place for place in gone if place.suffix == ".parquet" and "_delta_log" not in place.parts]) == 3
    for place in gone:
        place.unlink()
    assert shop.rows() == before
    again = shop.refresh(sales(("a", 1.0), ("z", 2.0)))
    assert (again.inserted, again.retracted, again.delta_version) == (1, 2, 4)
    assert shop.rows() == Counter({("a", "1.0"): 1, ("z", "2.0"): 1})


@pytest.mark.full
def test_putting_together_that_was_killed_is_made_good(shop: Shop) -> None:
    """The kill comes after the commit: the next run commits again; the refresh deals with foreign commits."""
    last = _fragments(shop)
    store = open_store(shop.lake)

    def killed(name: str) -> None:
        if name == "cycle.after_tables":
            raise KeyboardInterrupt(name)

    with watched(killed), pytest.raises(KeyboardInterrupt, match=r"cycle.after_tables"):
        shop.optimize(last, 2)
    assert (newest_version(shop.path), newest_view_cut(store, "revenue")) == (3, last)
    result = shop.optimize(last, 2)
    assert result is not None
    assert (result.delta_version, result.number) == (3, last.number + 1)
    shop.spark.sql(f"DELETE FROM delta.`{shop.path}` WHERE product = 'a'")  # noqa: S608  a folder of our own
    assert shop.optimize(result, 1) is None
    assert newest_version(shop.path) == 4
