"""A footer's statistics are never tighter than the rows: a reader who leaves out files by them loses none."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeproof.lake.delta.files.statistics import has_float_bounds, statistics_text
from tests.support.lake.linkable_rows import DAYS, MICROSECONDS, SPARK_TYPES, array_of, land, random_rows
from tests.support.workloads.examples import examples

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  times are compared as numbers
_LETTERS = st.text(st.sampled_from(list("aé\x7f\uffff😀\U0010ffff")), min_size=28, max_size=40)
VALUES = {
    "id": st.integers(-(1 << 63), (1 << 63) - 1),
    "money": st.decimals(-9_999_999, 9_999_999, places=2),
    "widest": st.decimals(-(10**27), 10**27, places=10),
    "note": st.one_of(st.text(st.characters(exclude_categories=["Cs"])), _LETTERS),
    "day": st.integers(*DAYS),
    "at": st.integers(*MICROSECONDS),
    "instant": st.integers(*MICROSECONDS),
}


def _statistics(rows: pa.Table, group_rows: int = 2) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        file = land(Path(folder), "rows.parquet", rows, group_rows)
        text = statistics_text(pq.read_metadata(file.url), SPARK_TYPES)
    return dict(json.loads(text, parse_float=Decimal))


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text.removesuffix("Z")) - _EPOCH) // timedelta(microseconds=1)


def _comparable(name: str, bound: Any) -> Any:
    """Return a bound as the values are compared: texts by their octets, days and times as numbers."""
    if name == "note":
        return bound.encode()
    if name == "day":
        return (datetime.fromisoformat(bound) - _EPOCH).days
    return _microseconds(bound) if name in {"at", "instant"} else bound


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_no_value_lies_outside_the_bounds(data: st.DataObject) -> None:
    """Every type that has bounds, in one row group or several, with NULLs."""
    rows = data.draw(st.integers(1, 6), label="rows")
    columns = {
        name: data.draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows), label=name)
        for name, values in VALUES.items()
    }
    statistics = _statistics(pa.table({name: array_of(name, column) for name, column in columns.items()}))
    for name, column in columns.items():
        existing: list[Any] = [v.encode() if isinstance(v, str) else v for v in column if v is not None]
        assert statistics["numRecords"] == len(column)
        assert statistics["nullCount"][name] == len(column) - len(existing)
        if name in statistics["minValues"]:
            assert _comparable(name, statistics["minValues"][name]) <= min(existing)
        if name in statistics["maxValues"]:
            assert _comparable(name, statistics["maxValues"][name]) >= max(existing)
        if name in {"id", "money", "widest", "day"} and existing:
            bounds = (statistics["minValues"][name], statistics["maxValues"][name])
            assert [_comparable(name, b) for b in bounds] == [min(existing), max(existing)]


def test_floats_and_lists_have_no_bounds() -> None:
    """NaN is above every number, and a footer does not know it."""
    rows = random_rows(random.Random(3), 50)
    statistics = _statistics(rows, 20)
    for name in ("ratio4", "ratio8", "numbers", "notes", "moments", "flag", "octets"):
        assert name not in statistics["minValues"]
        assert name not in statistics["maxValues"]
    assert statistics["nullCount"]["flag"] == rows["flag"].null_count
    assert not {"ratio4", "numbers"} & set(statistics["nullCount"])


def test_a_column_that_the_file_lacks_is_null_in_every_row() -> None:
    """A name with a dot is a column's own name."""
    rows = pa.table({"a.b": pa.array([1, None, 3], pa.int64())})
    with TemporaryDirectory() as folder:
        footer = pq.read_metadata(land(Path(folder), "rows.parquet", rows).url)
        statistics = json.loads(statistics_text(footer, {"a.b": "bigint", "gone": "string"}))
    assert statistics["nullCount"] == {"a.b": 1, "gone": 3}
    assert statistics["minValues"] == {"a.b": 1}


def test_a_text_too_long_for_the_footer_has_no_bounds() -> None:
    """Arrow keeps none of more than 4 KB; the count of NULL stays."""
    statistics = _statistics(pa.table({"note": ["a", "b", "x" * 5000, None]}))
    assert statistics["nullCount"]["note"] == 1
    assert "note" not in {**statistics["minValues"], **statistics["maxValues"]}


def test_the_last_millisecond_has_no_upper_bound() -> None:
    """The year 10000 has no text in the log."""
    statistics = _statistics(pa.table({"at": array_of("at", [MICROSECONDS[1], MICROSECONDS[0]])}))
    assert statistics["minValues"] == {"at": "0001-01-01T00:00:00.000"}
    assert "at" not in statistics["maxValues"]


def test_a_time_that_python_does_not_have_has_no_bounds(tmp_path: Path) -> None:
    """PostgreSQL and Spark have dates after the year 9999: their file is written, and is read whatever is looked for."""
    types = {"d": pa.date32(), "t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC")}
    far = {name: pa.array([MICROSECONDS[1] + 1], pa.int64()) for name in types} | {
        "d": pa.array([DAYS[1] + 1], pa.int32())
    }
    table = pa.table({name: array.cast(types[name]) for name, array in far.items()} | {"n": [1]})
    pq.write_table(table, tmp_path / "t.parquet")
    footer = pq.read_metadata(tmp_path / "t.parquet")
    statistics = json.loads(
        statistics_text(footer, {"d": "date", "t": "timestamp_ntz", "z": "timestamp", "n": "bigint"})
    )
    assert (statistics["numRecords"], statistics["minValues"], statistics["maxValues"]) == (1, {"n": 1}, {"n": 1})


def test_an_empty_file_has_counts_alone() -> None:
    """No row group, no bounds."""
    statistics = _statistics(random_rows(random.Random(1), 0))
    assert (statistics["numRecords"], statistics["minValues"], statistics["maxValues"]) == (0, {}, {})


def test_bounds_of_floats_are_seen(tmp_path: Path) -> None:
    """Somebody else's file may have them."""
    pq.write_table(pa.table({"ratio": [1.0, float("nan")]}), tmp_path / "theirs.parquet")
    assert has_float_bounds(pq.read_metadata(tmp_path / "theirs.parquet"))
    ours = land(tmp_path, "ours.parquet", pa.table({"ratio": [1.0, float("nan")]}))
    assert not has_float_bounds(pq.read_metadata(ours.url))
