"""A process that links a landed file is killed: what it leaves is enough for the next one to make the commit once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.failpoints import VARIABLE
from lakeproof.lake.delta.files.needed import table_files, unneeded
from lakeproof.lake.delta.link_commit import linked_name, prepare_links
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_version
from tests.support.lake.linkable_rows import as_numbers, land, random_rows
from tests.support.spark.fix_lake import other_file_system
from tests.support.spark.link_process import link_request

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _killed(place: str, module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, VARIABLE: place}
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=600, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


@pytest.mark.parametrize("place", ["apply.after_links", "apply.before_commit"])
def test_a_killed_link_is_made_once_by_the_next_process(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """The name is there and no commit has it; the same file goes under the same name again."""
    rows = random_rows(random.Random(8), 100)
    file = Path(land(tmp_path / "landing", "a.parquet", rows).url)
    table = tmp_path / "t"
    _killed(place, "tests.support.spark.link_process", str(table), str(file))
    request = link_request(table, file)
    name = linked_name(request.info, request.links[0].landed)
    assert (newest_version(str(table)), (table / name).samefile(file)) == (NO_VERSION, True)
    assert prepare_links(request).commit().version == 0
    assert as_numbers(spark.read.format("delta").load(str(table)).toArrow()) == as_numbers(rows)
    assert [path.name for path in table.glob("*.parquet")] == [name]


# What a process leaves that is killed there: the name, its checksums, a temporary file.
@pytest.mark.parametrize(
    ("place", "is_copied", "left"),
    [
        ("links.after_name", False, (True, False, 0)),
        ("links.after_copy", True, (False, False, 1)),
        pytest.param("links.after_checksums", False, (True, True, 0), marks=pytest.mark.full),
        pytest.param("links.after_name", True, (True, False, 0), marks=pytest.mark.full),
        pytest.param("links.after_checksums", True, (True, True, 0), marks=pytest.mark.full),
    ],
)
def test_a_name_that_is_half_given_is_given_again(
    spark: SparkSession, tmp_path: Path, place: str, *, is_copied: bool, left: tuple[bool, bool, int]
) -> None:
    """A link, or a copy to another file system: the next process commits it, and what is left over is nobody's."""
    rows = random_rows(random.Random(9), 100)
    with other_file_system(tmp_path) as other:
        file = Path(land(tmp_path / "landing", "a.parquet", rows).url)
        table = (other if is_copied else tmp_path) / "t"
        request = link_request(table, file)
        name = linked_name(request.info, request.links[0].landed)
        _killed(place, "tests.support.spark.place_process", str(file), str(table), name)
        temporary = [path.name for path in table.glob(".lp-*")]
        assert ((table / name).exists(), (table / f".{name}.crc").exists(), len(temporary)) == left
        assert prepare_links(request).commit().version == 0
        assert as_numbers(spark.read.format("delta").load(str(table)).toArrow()) == as_numbers(rows)
        assert (table / name).samefile(file) is not is_copied
        assert (table / f".{name}.crc").exists()
        assert [url.rpartition("/")[2] for url, _ in unneeded(str(table), table_files(str(table), 0))] == temporary
