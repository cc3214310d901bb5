"""Small files are put together on the version that was looked at: what somebody has committed since is not taken over."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakeproof.errors import TransientError
from lakeproof.lake.delta.files.optimize import optimize
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand


def _no_session() -> NoReturn:
    raise NoSparkError("Spark", "this test has none", "report this")


NO_SPARK = SparkOnDemand(_no_session)


def _table(path: Path, rows: int) -> TableState:
    """A table of so many rows, each in a file of its own."""
    for number in range(rows):
        write_deltalake(path, pa.table({"v": [number]}), mode="append")
    return read_state(str(path), rows - 1)


def test_files_are_put_together_in_a_commit_of_the_version_that_was_read(tmp_path: Path) -> None:
    """The rows stay, in fewer files."""
    state = _table(tmp_path, 3)
    assert optimize(NO_SPARK, state, 1, "{}", "v") == 3
    assert len(read_state(str(tmp_path), 3).files) == 1
    assert DeltaTable(tmp_path).to_pyarrow_table().column("v").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("rows", [1, 3])
def test_what_somebody_has_committed_since_is_not_named(tmp_path: Path, rows: int) -> None:
    """The version that is returned goes into a cut: it must not be a stranger's, whether or not files are put together."""
    state = _table(tmp_path, rows)
    write_deltalake(tmp_path, pa.table({"v": [99]}), mode="append")
    if rows == 1:
        assert optimize(NO_SPARK, state, 1, "{}", "v") == 0
    else:
        with pytest.raises(TransientError, match="someone else committed to the table meanwhile"):
            optimize(NO_SPARK, state, 1, "{}", "v")
    assert DeltaTable(tmp_path).version() == rows
