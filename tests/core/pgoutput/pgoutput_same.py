"""The comparison of two batches, to the last bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa

from lakeproof.pgoutput.batch import Batch


def assert_same(fast: Batch, slow: Batch) -> None:
    """Compare every field; of the rows, floats by their bits."""
    for name in (f.name for f in fields(Batch) if f.name != "changes"):
        assert getattr(fast, name) == getattr(slow, name), name
    assert [t.version for t in fast.changes] == [t.version for t in slow.changes]
    for one, other in zip(fast.changes, slow.changes, strict=True):
        assert one.counts == other.counts
        one.rows.validate(full=True)
        assert one.rows.schema == other.rows.schema
        for name in one.rows.schema.names:
            assert comparable(one.rows.column(name)).equals(comparable(other.rows.column(name))), name


def comparable(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The array with the bits of its floats in their place, so that NaN equals NaN and 0 is not -0."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_list(array.type) and pa.types.is_floating(array.type.value_type):
        return pa.ListArray.from_arrays(array.offsets, comparable(array.values), mask=array.is_null())
    if not pa.types.is_floating(array.type):
        return array
    numbers = array.fill_null(7.5).to_numpy(zero_copy_only=False)
    view = numbers.view(np.int32 if pa.types.is_float32(array.type) else np.int64)
    return pa.StructArray.from_arrays([pa.array(view), array.is_null()], ["bits", "missing"])
