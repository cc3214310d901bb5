"""The rows of a Delta table without Spark: the bounds of a file's values, and values of a type that was widened since."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeproof.lake.delta.arrow_rows import DeltaRows, widened
from lakeproof.lake.delta.committer import AddedFile, LoggedOperation, PendingCommit
from lakeproof.lake.delta.log.protocol import metadata_of, new_fields


@pytest.mark.parametrize(
    ("values", "statistics", "bounds"),
    [
        ([5, 3, 9, 4], True, (3, 9)),
        ([5, 3, None, None], True, None),
        ([None] * 4, True, None),
        ([], True, None),
        ([5, 3, 9, 4], False, None),
    ],
)
def test_a_file_has_bounds_if_all_its_parts_have(
    tmp_path: Path, values: list[int | None], statistics: bool, bounds: tuple[int, int] | None
) -> None:
    """Two rows in each row group. Who passes a file over by its bounds must not do so by those of a part of it."""
    rows = pa.table({"v": pa.array(values, pa.int64())})
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=2, write_statistics=statistics)
    change = PendingCommit(str(tmp_path), None)
    change.set_metadata(metadata_of(new_fields({"v": "bigint", "later": "bigint"}), {}))
    entry = {"path": "f.parquet", "size": 9, "partitionValues": {}, "stats": f'{{"numRecords":{len(values)}}}'}
    change.add([AddedFile(entry)])
    change.commit(None, LoggedOperation("WRITE", {}, {}))
    table = DeltaRows.open(str(tmp_path), 0)
    (file,) = table.files
    assert table.bounds(file, "v") == bounds
    assert table.bounds(file, "later") is None, "the file is older than the column"


@pytest.mark.parametrize(
    ("value", "narrow", "wide"),
    [
        (-(2**31), pa.int32(), pa.int64()),
        (2**31 - 1, pa.int32(), pa.float64()),
        (-(2**31), pa.int32(), pa.decimal128(10, 0)),
        (2**15 - 1, pa.int16(), pa.decimal128(7, 2)),
        (Decimal("1.05"), pa.decimal128(3, 2), pa.decimal128(12, 2)),
        (Decimal("-9.99"), pa.decimal128(3, 2), pa.decimal128(38, 10)),
        (0.5, pa.float32(), pa.float64()),
        (date(1, 1, 1), pa.date32(), pa.timestamp("us")),
    ],
)
def test_a_value_of_a_file_is_the_same_under_a_wider_type(
    value: object, narrow: pa.DataType, wide: pa.DataType
) -> None:
    """A file keeps the type that the column had; its least and greatest values, and its digits after the point."""
    read = widened(pa.array([value, None], narrow), wide)
    assert read.type == wide
    expected = datetime(1, 1, 1) if isinstance(value, date) else value  # noqa: DTZ001  (it has no zone)
    assert read.to_pylist() == [expected, None]
