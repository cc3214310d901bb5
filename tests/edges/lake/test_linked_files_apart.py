"""A linked file has several names, on one file system or on two: each goes its own way, and none misses another."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.links import LandedFile
from lakeproof.lake.delta.files.needed import sync_commits, table_files, unneeded
from lakeproof.lake.delta.link_commit import Link, linked_name, prepare_links
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_version
from lakeproof.storage.open import open_store
from tests.support.lake.link_steps import DAMAGE, expected, flip, info, land_three, read, request, three_files
from tests.support.lake.linkable_rows import as_numbers, landed
from tests.support.spark.fix_lake import other_file_system
from tests.support.workloads.lake_workload import SEED

pytestmark = pytest.mark.spark


@pytest.fixture
def rows() -> list[pa.Table]:
    """Three files' rows of every type."""
    return three_files()


@pytest.fixture
def files(rows: list[pa.Table], tmp_path: Path) -> list[LandedFile]:
    """The files, in several row groups."""
    return land_three(tmp_path, rows)


def test_links_go_across_real_file_systems(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile]
) -> None:
    """History on the landing's file system and current on another: one link and one copy, which need each other no more.

    Half a copy, and a copy of a file that is damaged meanwhile, are never a table's.
    """
    with other_file_system(tmp_path) as other:
        history, current = tmp_path / "history", other / "current"
        prepared = [prepare_links(request(table, 1, [Link(f) for f in files[:2]])) for table in (history, current)]
        for one in prepared:
            one.commit()
        names = [linked_name(info(1), f) for f in files[:2]]
        assert [(history / name).samefile(Path(f.url)) for name, f in zip(names, files, strict=False)] == [True, True]
        assert [(current / name).stat().st_nlink for name in names] == [1, 1]
        assert not list(current.glob(".lp-*"))
        assert sync_commits({str(current): NO_VERSION}, open_store(tmp_path)) >= 2
        flip(Path(files[0].url))
        assert as_numbers(read(spark, current).toArrow()) == expected(*rows[:2])
        for damage in DAMAGE.values():
            (current / linked_name(info(2), files[2])).write_bytes(Path(files[2].url).read_bytes()[:-7])
            kept = Path(files[2].url).read_bytes()
            damage(Path(files[2].url))
            before = {path for path in current.iterdir() if "000000000002" not in path.name}
            with pytest.raises(LakeError, match="landed file"):
                prepare_links(request(current, 2, [Link(files[2])]))
            assert set(current.iterdir()) == before
            Path(files[2].url).write_bytes(kept)
        (current / linked_name(info(2), files[2])).write_bytes(Path(files[2].url).read_bytes()[:-7])
        prepare_links(request(current, 2, [Link(files[2])])).commit()
        assert as_numbers(read(spark, current).toArrow()) == expected(*rows)


def _given_up(spark: SparkSession, table: Path) -> None:
    """Take every row and file of a table away, as its retention does in the end."""
    spark.sql(f"DELETE FROM delta.`{table}`")  # noqa: S608  the test's own table
    for url, _ in unneeded(str(table), table_files(str(table), newest_version(str(table)))):
        Path(url).unlink()
    assert not list(table.glob("cycle-*"))


ORDERS = list(itertools.permutations(["landing", "history", "current"]))


@pytest.mark.full
@pytest.mark.parametrize("order", [ORDERS[SEED % 6], *(pytest.param(one, marks=pytest.mark.full) for one in ORDERS)])
def test_the_landing_and_both_tables_give_a_file_up_in_any_order(
    spark: SparkSession, tmp_path: Path, rows: list[pa.Table], files: list[LandedFile], order: tuple[str, ...]
) -> None:
    """Whoever still has it has every byte; with the last name it is gone."""
    left_out = np.arange(50)
    for layer, link in (("history", Link(files[0])), ("current", Link(files[0], left_out))):
        prepare_links(request(tmp_path / layer, 1, [link])).commit()
    kept = {"landing": Path(files[0].url), "history": tmp_path / "history", "current": tmp_path / "current"}
    for gone in order:
        if gone == "landing":
            kept.pop(gone).unlink()
        else:
            _given_up(spark, kept.pop(gone))
        for name, place in kept.items():
            if name == "landing":
                assert landed(place) == files[0]
            else:
                assert as_numbers(read(spark, place).toArrow()) == expected(rows[0].slice(50 * (name == "current")))
        names = [path for path in tmp_path.rglob("*.parquet") if path.stat().st_size == files[0].bytes]
        assert len(names) == len(kept)
        assert {path.stat().st_nlink for path in names} <= {len(kept)}
