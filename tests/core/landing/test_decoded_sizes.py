"""The size of decoded rows is counted before they are encoded: by column, whatever they compress to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeproof.lake.rows.memory import ROWS_TOGETHER_MAX, TOGETHER_BYTES, settings_for_rows
from lakeproof.landing.segments.decoded_size import DecodedCount, largest_value

_TEXTS = pa.array(["", None, "abc", "ää"])


@pytest.mark.parametrize(
    ("column", "octets"),
    [
        (_TEXTS, 4),
        (_TEXTS.slice(0, 3), 3),
        (pa.array([None, None], pa.string()), 0),
        (pa.array([b"12345"]), 5),
        (pa.array([1, 2]), 8),
        (pa.array([True]), 1),
        (pa.array(["insert"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())), 1),
        (pa.array([[1, 2], None, [1, 2, 3]], pa.list_(pa.int16())), 6),
        (pa.array([["a", None, "bcd"], [], ["xyz", "xyz"], None]), 6),
        (pa.array([["aaaaaaaa"], ["b"]]).slice(1), 1),
        (pa.chunked_array([["a"], ["bcdef"]]), 5),
        (pa.array([], pa.string()), 0),
    ],
)
def test_the_largest_value_of_a_column(column: pa.Array, octets: int) -> None:
    """Sizes are in octets; a list counts all its elements, a slice only its own part."""
    assert largest_value(column) == octets


def test_no_row_has_more_than_the_largest_values_together() -> None:
    """The rows may come in any number of parts."""
    count = DecodedCount()
    count.add(pa.table({"a": ["x" * 100, ""], "b": [1, 2]}))
    count.add(pa.table({"a": ["y"], "b": [3]}))
    assert count.so_far.row == 108
    assert count.so_far.bytes >= 101 + 3 * 8


def test_ordinary_rows_keep_the_settings_of_spark() -> None:
    """Few rows at a time cost time, so only rows that may be large get them."""
    assert settings_for_rows(0) == settings_for_rows(TOGETHER_BYTES // ROWS_TOGETHER_MAX) == {}
    large = settings_for_rows(5 << 20)
    assert large["spark.sql.parquet.columnarReaderBatchSize"] == large["parquet.page.size.row.check.max"] == "3"
    assert {value for value in settings_for_rows(1 << 30).values() if value.isdecimal()} == {"1"}
