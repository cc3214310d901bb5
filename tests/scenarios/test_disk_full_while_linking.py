"""The disk of a table is full while landed files become its files: one error, no file left over, and on when there is room.

The drain and the bootstrap on a full disk are in `test_disk_full.py`. The disk is a small tmpfs, which only root may mount.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.errors import NoRoomError
from lakeproof.lake.delta.link_commit import prepare_links
from tests.support.lake.linkable_rows import as_numbers, land, random_rows
from tests.support.spark.link_process import link_request

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("what", ["link", "copy", "rows"])
def test_a_full_disk_leaves_no_file_over(spark: SparkSession, tmp_path: Path, disk: Path, what: str) -> None:
    """A link's checksums, a copy and rows of this process need room: each attempt without it leaves the folder as it was."""
    rows, more = random_rows(random.Random(3), 1500), random_rows(random.Random(4), 1500, 1500)
    file = land((tmp_path if what == "copy" else disk) / "landing", "a.parquet", rows).url
    request = link_request(disk / "t", Path(file))
    if what == "rows":
        request = replace(request, links=[], rows=[more])
    ballast = disk / "ballast"
    (disk / "t").mkdir()
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(b"\0" * (free if what == "link" else free - 4096))
    for _ in range(3):
        with pytest.raises(NoRoomError, match="No space left on device; make room"):
            prepare_links(request)
        assert list((disk / "t").iterdir()) == []
    ballast.unlink()
    prepare_links(request).commit()
    committed = more if what == "rows" else rows
    assert as_numbers(spark.read.format("delta").load(str(disk / "t")).toArrow()) == as_numbers(committed)
