"""The exact form of floats is their bits, by which a proof compares them: Python's own packing is the oracle."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest

from lakeproof.values.forms_in_arrow import texts_of
from lakeproof.values.types import KINDS


@pytest.mark.parametrize(("kind", "code", "nan"), [("float4", "f", "7fc00000"), ("float8", "d", "7ff8000000000000")])
def test_each_float_has_its_bits_and_all_nans_have_the_same(kind: str, code: str, nan: str) -> None:
    """Zero has two forms; NULL has none."""
    values = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, 2.0**-149]
    other_nan = struct.unpack(code, struct.pack(code, math.nan)[:-1] + b"\xff")[0]
    array = pa.array([*values, math.nan, other_nan, None], pa.float32() if code == "f" else pa.float64())
    expected = [struct.pack(f">{code}", value).hex() for value in values]
    assert texts_of(array, KINDS[kind]).to_pylist() == [*expected, nan, nan, None]
