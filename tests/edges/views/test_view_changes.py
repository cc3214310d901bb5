"""A view's changes from cut to cut: what its refreshes corrected, each row once, also across a change of its columns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import lakeproof
from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError, LakeError
from lakeproof.lake.read.spark.changes import ViewChanges
from lakeproof.lake.records.views.cuts import ViewCut, one_refresh
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.open import open_store
from lakeproof.views.read_at import ViewInputs
from lakeproof.views.refresh import refresh_view

pytestmark = pytest.mark.spark


class Shop:
    """A lake with one view of the table `sales`, whose rows a test sets as it likes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark.newSession()
        self.lake = str(folder / "lake")
        self.file = folder / "view.sql"
        self.file.write_text("SELECT product, amount FROM sales WHERE NOT amount < 0", encoding="utf-8")
        sales = ("shop", TableName("public", "sales"))
        self.view = ViewConfig(name="revenue", sql_file=self.file, reads={"sales": sales})
        self.cuts = 0

    def refresh(self, *rows: tuple[str, float], replaces: bool = False) -> ViewCut:
        """Refresh over these sales, at the source's next cut."""
        self.cuts += 1
        frame = self.spark.createDataFrame(list(rows), "product string, amount double")
        inputs = ViewInputs({"sales": frame}, {"shop": CycleNumber(self.cuts)}, self.cuts, replaces=replaces)
        with one_refresh(open_store(self.lake)) as lock:
            return refresh_view(self.spark, open_store(self.lake), self.view, inputs, lock)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    """A bag: the sales that are not below 0."""
    return Shop(spark, tmp_path)


def _listed(rows: DataFrame) -> Counter[tuple[int, str, str, str]]:
    return Counter(
        (r.cut, r.kind, str(r.before and tuple(r.before)), str(r.after and tuple(r.after))) for r in rows.collect()
    )


def _without_spark(shop: Shop, first: int) -> Counter[tuple[int, str, str, str]]:
    counts: Counter[tuple[int, str, str, str]] = Counter()
    for step in lakeproof.read_view_changes(shop.lake, "revenue", first):
        for r in step.rows().arrow().to_pylist():
            images = [str(r[side] and tuple(r[side].values())) for side in ("before", "after")]
            counts[int(step.cut.number), r["kind"], images[0], images[1]] += 1
    return counts


@pytest.mark.full
def test_each_cut_s_rows_come_and_go(shop: Shop, spark: SparkSession) -> None:
    """K of n equal rows; several versions in one step; a cut without a commit; files put together are no change."""
    shop.refresh(("a", 1.0), ("a", 1.0), ("b", -0.0))
    shop.refresh(("a", 1.0), ("b", 0.0), ("c", 3.0))
    shop.refresh(("a", 1.0), ("b", 0.0), ("c", 3.0), ("z", -5.0))
    last = shop.refresh(("b", 0.0), ("c", 3.0))
    first = [(1, "insert", "None", str(row)) for row in (("a", 1.0), ("a", 1.0), ("b", -0.0))]
    second = [(2, "delete", "('a', 1.0)", "None"), (2, "delete", "('b', -0.0)", "None")]
    second += [(2, "insert", "None", "('b', 0.0)"), (2, "insert", "None", "('c', 3.0)")]
    fourth = [(4, "delete", "('a', 1.0)", "None")]
    changes = lakeproof.view_changes(spark, shop.lake, "revenue", 0)
    assert (changes.first, changes.last) == (0, last.number)
    assert _listed(changes.rows()) == _without_spark(shop, 0) == Counter(first + second + fourth)
    assert _listed(lakeproof.view_changes(spark, shop.lake, "revenue", 1, 3).rows()) == Counter(second)
    assert _listed(lakeproof.view_changes(spark, shop.lake, "revenue", 4).rows()) == Counter()
    with pytest.raises(ConfigError, match="does not lie before"):
        lakeproof.view_changes(spark, shop.lake, "revenue", 5)
    with pytest.raises(LakeError, match="no such cut"):
        lakeproof.view_changes(spark, shop.lake, "revenue", 0, 9)
    with pytest.raises(LakeError, match="it has no cut"):
        lakeproof.view_changes(spark, shop.lake, "other", 0)


@pytest.mark.full
def test_other_columns_are_another_part(shop: Shop, spark: SparkSession) -> None:
    """Both shapes are named: all rows of the old one go, all of the new one come."""
    shop.refresh(("a", 1.0))
    shop.refresh(("a", 1.0), ("b", 2.0))
    shop.file.write_text("SELECT product, CAST(amount AS int) AS whole FROM sales", encoding="utf-8")
    shop.refresh(("a", 1.0), ("b", 2.0), replaces=True)
    changes = lakeproof.view_changes(spark, shop.lake, "revenue", 1)
    with pytest.raises(LakeError, match="its shape changes"):
        changes.rows()
    same, other = changes.parts()
    assert same.before == same.after == other.before
    assert (other.before.fieldNames(), other.after.fieldNames()) == (["product", "amount"], ["product", "whole"])
    assert _listed(same.rows) == Counter([(2, "insert", "None", "('b', 2.0)")])
    gone = [(3, "delete", "('a', 1.0)", "None"), (3, "delete", "('b', 2.0)", "None")]
    reshaped = [change for change in _without_spark(shop, 1).elements() if change[0] == 3]
    assert (
        _listed(other.rows)
        == Counter(reshaped)
        == Counter([*gone, (3, "insert", "None", "('a', 1)"), (3, "insert", "None", "('b', 2)")])
    )


def test_a_stream_of_a_view_goes_on_from_its_checkpoint(shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    """Each cut once, in order; a batch that broke off comes again."""
    delivered: list[tuple[int, int, Counter[tuple[int, str, str, str]]]] = []

    def deliver(batch: ViewChanges) -> None:
        delivered.append((int(batch.first), int(batch.last), _listed(batch.rows())))
        if len(delivered) == 2:
            raise OSError("the subscriber's disk is full")

    def run() -> None:
        stream = lakeproof.subscribe(
            spark, shop.lake, deliver, checkpoint=tmp_path / "c", view="revenue", cuts_per_batch=1, available_now=True
        )
        stream.awaitTermination(300)

    shop.refresh(("a", 1.0))
    shop.refresh(("a", 2.0))
    with pytest.raises(StreamingQueryException, match="disk is full"):
        run()
    run()
    assert [batch[:2] for batch in delivered] == [(0, 1), (1, 2), (1, 2)]
    assert delivered[1] == delivered[2]
    assert delivered[2][2] == Counter([(2, "delete", "('a', 1.0)", "None"), (2, "insert", "None", "('a', 2.0)")])
