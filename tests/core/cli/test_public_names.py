"""The package as a person sees it: names that complete, a version, types, and no Spark before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lakeproof
from lakeproof.lake.read.spark.open import OpenedLake
from lakeproof.lsn import Lsn
from lakeproof.names import TableName


def test_every_public_name_completes_and_is_there() -> None:
    """Completion works in a notebook (`lakeproof.` and Tab)."""
    assert set(lakeproof.__all__) <= set(dir(lakeproof))
    assert all(getattr(lakeproof, name) is not None for name in lakeproof.__all__)
    assert (Path(lakeproof.__file__).parent / "py.typed").exists()


def test_the_package_is_imported_without_spark() -> None:
    """A drain does not pay for Spark."""
    program = "import sys, lakeproof; dir(lakeproof); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_opened_lake_shows_its_cuts_in_one_line() -> None:
    """The cuts hold every column of every table, so the full form would be long."""

    class _Cut:
        number, position = 7, Lsn(0x16B3748)
        tables = {TableName("s", "b"): None, TableName("s", "a"): None}  # noqa: RUF012  a stand-in for a cut's

    opened = OpenedLake(None, "/data/lake", {"shop": _Cut()})  # type: ignore[arg-type,dict-item]  # nothing is read
    assert repr(opened) == "<lake /data/lake: shop at cut 7 (0/16B3748)>"
    assert opened.sources == ["shop"]
    assert [str(table) for table in opened.tables()] == ["s.a", "s.b"]
