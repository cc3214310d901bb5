"""A table's property says which columns get statistics: whoever puts its files together goes by it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from lakeproof.lake.delta.committer import CommitInfo, LoggedOperation, PendingCommit
from lakeproof.lake.delta.log.protocol import TableSpec, metadata_of, new_fields, statistics_of
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.delta.schema import ColumnChanges, SchemaRequest, change_schema
from lakeproof.lake.spark_on_demand import SparkOnDemand

COLUMNS = {"a": "int", "b": "int"}


def _no_session() -> NoReturn:
    pytest.fail("a change without rows needs no session")


def test_another_key_changes_the_property_once(tmp_path: Path) -> None:
    """The columns stay the same, so nothing else of the table differs."""
    path, spec = str(tmp_path / "t"), TableSpec(statistics=("a",))
    new = PendingCommit(path, None)
    new.set_metadata(metadata_of(new_fields(COLUMNS), spec.options(list(COLUMNS))))
    new.commit(CommitInfo("try", 1, "{}"), LoggedOperation("CREATE TABLE", {}, {}))
    change = ColumnChanges(order=tuple(COLUMNS), statistics=("b",))
    for number, version in ((2, 0), (3, 1)):
        request = SchemaRequest(path, change, CommitInfo("try", number, "{}"), version)
        assert change_schema(SparkOnDemand(_no_session), request).version == 1
    assert statistics_of(read_state(path, 1).metadata) == ("b",)
