"""An answer of an object store that ends too early is an error of the moment: the file itself is whole."""

from __future__ import annotations

import errno
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeproof.storage.object.files import RangedFile, as_binary


def test_a_short_answer_is_not_taken_for_a_damaged_file() -> None:
    """Damage is what Arrow reports itself, without a number: for it a table's history may be begun again."""
    file = io.BytesIO()
    pq.write_table(pa.table({"v": [1, 2, 3]}), file)
    data = file.getvalue()
    short = RangedFile(lambda start, end: data[start : end - 1], b"", len(data))
    with pytest.raises(OSError, match=f"a range of {len(data)} bytes came with {len(data) - 1}") as error:
        pq.ParquetFile(as_binary(short))
    assert error.value.errno == errno.EIO
