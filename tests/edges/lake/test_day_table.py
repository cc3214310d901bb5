"""A table of days: each replaced as a whole in one commit of this process, read and written by Spark as any other table."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.delta.committer import AddedFile
from lakeproof.lake.delta.day_table import read_day, write_day
from lakeproof.lake.delta.files import by_spark as spark_files
from lakeproof.lake.delta.log.checkpoint import write_checkpoint
from lakeproof.lake.delta.log.commits import commit_name, newest_version
from lakeproof.lake.delta.log.state import read_state
from lakeproof.storage.folder import Folder
from tests.support.faults.power_cut import PowerCut

pytestmark = pytest.mark.spark
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)


class _Lock:
    """A lock that this process has, or has lost."""

    def __init__(self, *, lost: bool = False) -> None:
        self.lost = lost

    def check(self) -> None:
        """Do as a lock on S3 does."""
        if self.lost:
            raise TransientError("days", "its lock was not renewed in time", "start again")


def _write(path: str, rows: DataFrame, day: date) -> int:
    return write_day(path, rows, day, _Lock())


def _rows(frame: DataFrame) -> Counter[str]:
    return Counter(map(str, frame.collect()))


def test_days_of_different_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A column is widened, one comes with a name that no file can have, a day is made again, and one is empty."""
    path = str(tmp_path / "days")
    monday = spark.range(0, 9).selectExpr("int(id) AS id", "decimal(id) / 4 AS n", "'x' AS Day")
    assert _write(path, monday, MONDAY) == 0
    assert spark.read.format("delta").load(path).columns == ["id", "n", "Day", "day_"]
    tuesday = spark.range(0, 5).selectExpr("id << 40 AS id", "'y' AS day", "id AS `a new, odd one`")
    assert _write(path, tuesday, TUESDAY) == 1
    names = ["id", "n", "Day", "a new, odd one"]
    assert set(read_day(spark, path, MONDAY).columns) == set(names)
    for _ in range(2):
        assert _rows(read_day(spark, path, MONDAY).select("id", "n", "Day")) == _rows(
            monday.selectExpr("bigint(id) AS id", "n", "Day")
        )
        assert _rows(read_day(spark, path, TUESDAY).select("id", "a new, odd one")) == _rows(tuesday.drop("day"))
        _write(path, tuesday, TUESDAY)
    with pytest.raises(LakeError, match="column id is string on this day and bigint on others"):
        _write(path, spark.sql("SELECT '1' AS id"), TUESDAY)
    with pytest.raises(LakeError, match="a column day_ now"):
        _write(path, spark.sql("SELECT 1 AS day_"), TUESDAY)
    _write_by_spark(spark, path, tmp_path / "copy")
    _write(path, tuesday.limit(0), TUESDAY)
    assert (read_day(spark, path, TUESDAY).count(), read_day(spark, path, MONDAY).count()) == (0, 9)


def _write_by_spark(spark: SparkSession, path: str, copy: Path) -> None:
    """Let Spark change a copy of which the log has a checkpoint alone."""
    shutil.copytree(path, copy)
    version = newest_version(path)
    write_checkpoint(Folder.at(str(copy)), read_state(path, version))
    for file in (copy / "_delta_log").iterdir():
        if not file.name.startswith((f"{version:020d}", "_last")):
            file.unlink()
    place = f"delta.`{copy}`"
    assert spark.sql(f"DESCRIBE DETAIL {place}").collect()[0]["partitionColumns"] == ["day_"]
    spark.sql(f"DELETE FROM {place} WHERE id = 2")  # noqa: S608  a place of the test
    spark.sql(f"OPTIMIZE {place}")
    spark.sql(f"DELETE FROM {place} WHERE day_ = DATE'{TUESDAY}'")  # noqa: S608  a place of the test
    assert _rows(read_day(spark, str(copy), MONDAY)) == _rows(read_day(spark, path, MONDAY).where("id <> 2"))
    assert _write(str(copy), read_day(spark, path, TUESDAY), TUESDAY) == version + 4
    assert _rows(read_day(spark, str(copy), TUESDAY)) == _rows(read_day(spark, path, TUESDAY))
    assert _rows(read_day(spark, str(copy), MONDAY)) == _rows(read_day(spark, path, MONDAY).where("id <> 2"))


def test_a_commit_beside_it_wins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day is committed on the version that was read, or not at all."""
    path, rows, write = str(tmp_path / "days"), spark.range(3), spark_files.write_by_spark
    _write(path, rows, MONDAY)

    def beside(*arguments: object) -> list[AddedFile]:
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")  # noqa: S608  a place of the test
        return write(*arguments)  # type: ignore[arg-type]  # as they came

    # inside: somebody commits while the rows are written
    monkeypatch.setattr(spark_files, "write_by_spark", beside)
    with pytest.raises(TransientError, match="someone else committed"):
        _write(path, rows, TUESDAY)
    assert (newest_version(path), spark.read.format("delta").load(path).count()) == (1, 2)


def test_nothing_is_committed_without_the_lock(spark: SparkSession, tmp_path: Path) -> None:
    """Who slept for long on S3 may have lost it while the rows were written: maintenance may have removed their files."""
    path = str(tmp_path / "days")
    _write(path, spark.range(3), MONDAY)
    with pytest.raises(TransientError, match="its lock was not renewed"):
        write_day(path, spark.range(5), TUESDAY, _Lock(lost=True))
    assert newest_version(path) == 0


@pytest.mark.parametrize("built", [1, pytest.param(10, marks=pytest.mark.full)])
def test_a_power_cut_leaves_a_day_whole_or_not_there(spark: SparkSession, tmp_path: Path, built: int) -> None:
    """No cycle cleans the log of such a table, so its version must not be there in part: it could never be read again."""
    rng, lake = random.Random(SEED), tmp_path / "lake"
    lake.mkdir()
    _write(str(lake / "days"), spark.range(3), MONDAY)
    with PowerCut(lake) as power:
        _write(str(lake / "days"), spark.range(5), TUESDAY)
    final = {str(f.relative_to(lake)): f.read_bytes() for f in lake.rglob("*") if f.is_file()}
    commit, states = f"days/{commit_name(1)}", list(power.states(rng, 200))
    files = [name for name in final if name.endswith(".parquet")]
    whole = [state for state in states if commit in state.tree()]
    for state in whole:
        assert {name for name in (commit, *files) if state.tree().get(name) != final[name]} == set(), (SEED, str(state))
    assert 0 < len(whole) < len(states)
    chosen = [*rng.sample(whole, min(built, len(whole))), *rng.sample(states, built)]
    for number, state in enumerate(chosen):
        path = str(state.build(tmp_path / f"state{number}") / "days")
        days = Counter(row[0] for row in spark.read.format("delta").load(path).select("day").collect())
        assert days == {MONDAY: 3, **({TUESDAY: 5} if state in whole else {})}, (SEED, str(state))
        _write(path, spark.range(2), TUESDAY)
        assert read_day(spark, path, TUESDAY).count() == 2, (SEED, str(state))
