"""The caster: every kind's extremes, what goes to the hidden text, and what is no value at all."""

from __future__ import annotations

import json
import math
import random
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeproof.names import Oid
from lakeproof.values.cast import MARK, Cast, CastError, cast_column, text_overflow
from lakeproof.values.catalog_kinds import unknown_column
from lakeproof.values.pinned_settings import PINNED_SETTINGS
from lakeproof.values.types import KINDS, arrow_type, decimal_typmod
from tests.core.pgoutput.pgoutput_random import VALUES
from tests.core.values.casting import cast, column

UTC = timezone.utc
TEXT_KINDS = ("text", "bpchar", "varchar", "name", "uuid", "enum", "exact_text")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bool", "t", True),
        ("bool", "f", False),
        ("int2", "-32768", -32768),
        ("int2", "32767", 32767),
        ("int4", "-2147483648", -(2**31)),
        ("int4", "0", 0),
        ("int8", "-9223372036854775808", -(2**63)),
        ("int8", "9223372036854775807", 2**63 - 1),
        ("numeric", "0.00", Decimal("0.00")),
        ("numeric", "-99999999.99", Decimal("-99999999.99")),
        ("bytea", "\\x", b""),
        ("bytea", "\\x00ff5c78", b"\x00\xff\\x"),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("date", "9999-12-31", date(9999, 12, 31)),
        ("date", "1582-10-10", date(1582, 10, 10)),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "0001-01-01 00:00:00", datetime(1, 1, 1)),  # noqa: DTZ001  (it has no zone)
        ("timestamp", "9999-12-31 23:59:59.999999", datetime.max),  # noqa: DTZ901  (nor has this)
        ("timestamptz", "0001-01-01 00:00:00+00", datetime(1, 1, 1, tzinfo=UTC)),
        ("timestamptz", "1969-12-31 23:59:59.000001+00", datetime(1969, 12, 31, 23, 59, 59, 1, UTC)),
        ("timestamptz", "9999-12-31 23:59:59.1+00", datetime(9999, 12, 31, 23, 59, 59, 100000, UTC)),
    ],
)
def test_a_value_is_cast_exactly(kind: str, text: str, value: object) -> None:
    """A NULL beside the value stays NULL."""
    result = cast(kind, text, None)
    assert result.values.to_pylist() == [value, None]
    assert result.values.type == arrow_type(column(kind))
    assert result.overflow is None


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_a_text_is_kept_as_it_is(kind: str) -> None:
    """Blanks, controls, backslashes and all planes of Unicode."""
    texts = ["", "  a  ", "\n", "\\x", "NULL", "ß€🜁", "e\u0301", None]
    assert cast(kind, *texts).values.to_pylist() == texts


@pytest.mark.parametrize(
    ("kind", "text", "bits"),
    [
        ("float4", "-0", "80000000"),
        ("float4", "1e-45", "00000001"),
        ("float4", "3.4028235e+38", "7f7fffff"),
        ("float4", "1.1754944e-38", "00800000"),
        ("float4", "16777217", "4b800000"),
        ("float4", "0.1", "3dcccccd"),
        ("float4", "-Infinity", "ff800000"),
        ("float8", "-0", "8000000000000000"),
        ("float8", "5e-324", "0000000000000001"),
        ("float8", "1.7976931348623157e+308", "7fefffffffffffff"),
        ("float8", "2.2250738585072014e-308", "0010000000000000"),
        ("float8", "0.1", "3fb999999999999a"),
        ("float8", "9007199254740993", "4340000000000000"),
        ("float8", "Infinity", "7ff0000000000000"),
    ],
)
def test_a_float_has_the_bits_that_postgresql_has(kind: str, text: str, bits: str) -> None:
    """float4 is read as such, not by way of a float8."""
    value = cast(kind, text).values[0].as_py()
    assert struct.pack(">f" if kind == "float4" else ">d", value).hex() == bits


@pytest.mark.parametrize("kind", ["float4", "float8"])
def test_nan_is_a_float(kind: str) -> None:
    """NaN does not overflow."""
    result = cast(kind, "NaN")
    assert math.isnan(result.values[0].as_py())
    assert result.overflow is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("numeric", "NaN"),
        ("numeric", "Infinity"),
        ("numeric", "-Infinity"),
        ("numeric", "100000000"),
        ("numeric", "-123456789012345678901234567890.5"),
        ("numeric", "0.001"),
        ("date", "infinity"),
        ("date", "-infinity"),
        ("date", "0001-12-31 BC"),
        ("date", "4714-11-24 BC"),
        ("date", "10000-01-01"),
        ("date", "5874897-12-31"),
        ("timestamp", "infinity"),
        ("timestamp", "-infinity"),
        ("timestamp", "0044-03-15 12:00:00 BC"),
        ("timestamp", "294276-12-31 23:59:59.999999"),
        ("timestamptz", "infinity"),
        ("timestamptz", "-infinity"),
        ("timestamptz", "0044-03-15 12:00:00.5+00 BC"),
        ("timestamptz", "10000-01-01 00:00:00+00"),
    ],
)
def test_what_the_type_can_not_hold_is_null_and_marked(kind: str, text: str) -> None:
    """The values beside it are neither."""
    good = {"numeric": "1.00", "date": "2024-01-01", "timestamp": "2024-01-01 00:00:00"}
    neighbour = good.get(kind, "2024-01-01 00:00:00+00")
    result = cast(kind, neighbour, text, None, neighbour)
    assert [value is None for value in result.values.to_pylist()] == [False, True, True, False]
    assert result.overflow is not None
    assert result.overflow.to_pylist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("bool", ["", "true", "T", "1", "tf", "t "]),
        ("int2", ["", "-", "32768", "1.0", "1e2", "0x1", "+1", " 1", "1\n", "00", "-0", "NaN"]),
        ("int4", ["2147483648", "-2147483649", "0X1f", "1_000"]),
        ("int8", ["9223372036854775808", "--1", "1-"]),
        ("float4", ["", "1e39", "inf", "nan", "+1", "0x1p3", "1e", ".5", "5.", "1,5", "-NaN", "1e+39", "-1e+39"]),
        ("float8", ["1e+309", "infinity", "1 "]),
        ("numeric", ["", "-", ".", "1.", ".5", "1e2", "+1", "1,00", "nan", "-NaN", "inf", "1.00\n", "\uff11"]),
        ("bytea", ["", "\\", "x", "\\x0", "\\X00", "\\xgg", "\\x0\\", "\\xx0", "\\000", "\\xAB", "00"]),
        ("date", ["", "0000-01-01", "2023-02-29", "2024-13-01", "2024-1-1", "01/02/2024", "2024-01-01 ", "24-01-01",
                  "2024-01-01 AD", "Infinity", "+infinity", "02024-01-01", "2024-01-01T00:00:00", "-2024-01-01"]),
        ("timestamp", ["2024-01-01", "2024-01-01 24:00:00", "2024-01-01 00:00", "2024-01-01T00:00:00",
                       "2024-01-01 00:00:00+00", "2024-01-01 00:00:00.", "2024-01-01 00:00:00.1234567",
                       "2024-01-01 23:59:60", "2024-02-30 00:00:00", "0000-01-01 00:00:00", "2024-01-01 00:00:00Z"]),
        ("timestamptz", ["2024-01-01 00:00:00", "2024-01-01 00:00:00+01", "2024-01-01 00:00:00-00",
                         "2024-01-01 00:00:00+00:00", "2024-01-01 00:00:00+05:30", "2024-01-01 00:00:00 UTC",
                         "2024-01-01 24:00:00+00", "1883-11-18 12:00:00-04:56:02"]),
    ],
)  # fmt: skip
def test_what_postgresql_does_not_print_is_malformed(kind: str, texts: list[str]) -> None:
    """All of them beside a good value, a NULL and one that does not fit: NULL in the column, marked as malformed."""
    good = VALUES[kind](random.Random(1))
    given = [good, None, *texts, good]
    result = cast(kind, *given)
    assert result.malformed is not None
    assert result.malformed.to_pylist() == [text in texts for text in given]
    alone = cast(kind, good, None, good)
    assert [repr(v) for v in result.values.to_pylist() if v is not None] == [
        repr(v) for v in alone.values.to_pylist() if v is not None
    ]
    with pytest.raises(CastError, match=f"column a: {len(texts)} text"):
        result.refuse_malformed(column(kind))


@pytest.mark.parametrize("text", ["\\000", "ax41", "xx41", "\\\\41", "41"])
def test_octets_of_another_form_are_malformed_also_alone(text: str) -> None:
    """The older form has backslashes and letters as well; read as digits they would be other octets."""
    for texts in ([text, text], [text, "\\x41"], [text, None]):
        result = cast("bytea", *texts)
        assert result.malformed is not None
        assert result.malformed.to_pylist() == [each == text for each in texts]
        assert result.values.to_pylist() == [b"A" if each == "\\x41" else None for each in texts]


def test_a_malformed_text_overflows_not_and_the_others_do() -> None:
    """The three ways of a text stand beside each other."""
    result = cast("date", "2024-01-01", "infinity", "today", "2023-02-30", None)
    assert result.values.to_pylist() == [date(2024, 1, 1), None, None, None, None]
    assert result.overflow is not None
    assert result.malformed is not None
    assert result.overflow.to_pylist() == [False, True, False, False, False]
    assert result.malformed.to_pylist() == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("typmod", "fits", "too_much"),
    [
        (decimal_typmod(38, 0), ["9" * 38, "-" + "9" * 38, "5.000"], ["1" + "0" * 38, "0.5"]),
        (decimal_typmod(38, 38), ["0." + "9" * 38, "-0." + "0" * 37 + "1"], ["1." + "0" * 38, "0." + "0" * 38 + "1"]),
        (decimal_typmod(1, 1), ["0.9", "0.50"], ["1.0", "0.95"]),
        (decimal_typmod(5, 2), ["999.99", "1", "1.5", "1.500", "0"], ["1000", "1.505", "1000.00"]),
    ],
)
def test_a_pinned_numeric_is_held_where_that_is_exact(typmod: int, fits: list[str], too_much: list[str]) -> None:
    """Nothing is rounded: digits beyond the scale must be zeros."""
    result = cast("numeric", *fits, *too_much, typmod=typmod)
    assert [Decimal(text) for text in fits] == result.values.to_pylist()[: len(fits)]
    assert result.overflow is not None
    assert result.overflow.to_pylist() == [False] * len(fits) + [True] * len(too_much)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nulls_empty_columns_and_slices_are_cast(kind: str) -> None:
    """Arrays as they come from a slice of a batch, of every string type."""
    texts = [VALUES[kind](random.Random(seed)) for seed in range(8)]
    whole = cast_column(pa.array(texts, pa.string()), column(kind))
    assert cast_column(pa.array([], pa.string()), column(kind)).values.type == arrow_type(column(kind))
    assert cast_column(pa.nulls(3, pa.string()), column(kind)).values.null_count == 3
    mixed = pa.array([None, *texts, None], pa.string())
    for given in (
        mixed.slice(1, 8),
        mixed.cast(pa.large_string()).slice(1, 8),
        mixed.cast(pa.string_view()).slice(1, 8),
    ):
        assert str(cast_column(given, column(kind)).values) == str(whole.values)


_SCALARS: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: {"t": True, "f": False}[text],
    "int2": int,
    "int4": int,
    "int8": int,
    "numeric": Decimal,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(_six_digits(text)),
    "timestamptz": lambda text: datetime.fromisoformat(_six_digits(text.removesuffix("+00")) + "+00:00"),
    "float8": float,
    "float4": lambda text: struct.unpack(">f", struct.pack(">f", float(text)))[0],
}


def _six_digits(text: str) -> str:
    head, _, fraction = text.partition(".")
    return f"{head}.{fraction:0<6}"


@pytest.mark.parametrize("kind", sorted(_SCALARS))
def test_columns_are_cast_as_single_values_are(kind: str) -> None:
    """Random values are compared with Python's own parsers."""
    rng = random.Random(kind)
    texts = [VALUES[kind](rng) if rng.random() > 0.1 else None for _ in range(500)]
    result = cast(kind, *texts)
    overflow = result.overflow.to_pylist() if result.overflow is not None else [False] * len(texts)
    for text, value, over in zip(texts, result.values.to_pylist(), overflow, strict=True):
        special = text is not None and not kind.startswith("float") and bool(re.search("NaN|nfinity|BC|^12024", text))
        assert over is special
        expected = None if text is None or over else _SCALARS[kind](text)
        assert repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(expected)


def test_overflow_texts_are_json_by_attribute_number() -> None:
    """Each row with overflowing values has one object; quotes and all planes of Unicode survive."""
    texts = pa.array(["NaN", None, 'a"\\\n🜁', "1"], pa.string())
    marked = Cast(texts, pa.array([True, False, True, False]))
    column_3, column_7 = column("numeric", attnum=3), column("date", attnum=7)
    both = text_overflow([(column_3, texts, marked), (column_7, texts, Cast(texts, None)), (column_7, texts, marked)])
    assert both.type == pa.string()
    assert [None if text is None else json.loads(text) for text in both.to_pylist()] == [
        {"3": "NaN", "7": "NaN"},
        None,
        {"3": 'a"\\\n🜁', "7": 'a"\\\n🜁'},
        None,
    ]


def test_malformed_texts_stand_first_under_keys_that_mark_them() -> None:
    """The object's first characters show the mark; octets that are not UTF-8 are written as digits."""
    dates = pa.array([b"infinity", b"today", b"2024-01-01"], pa.binary())
    numbers = pa.array([b"x", b"1", b"\xff"], pa.binary())
    columns = [(column("date", attnum=3), dates), (column("int4", attnum=12), numbers)]
    message = text_overflow([(c, texts, cast_column(texts, c)) for c, texts in columns]).to_pylist()
    assert message == ['{"!12":"x","3":"infinity"}', '{"!3":"today"}', '{"!x12":"ff"}']
    assert all(text.startswith('{"' + MARK) for text in message)


def test_a_forgotten_columns_malformed_text_is_kept_under_its_name() -> None:
    """The column has no attribute number."""
    texts = pa.array([b"\xe9"], pa.binary())
    gone = unknown_column("gone", Oid(25), -1, identity=False)
    assert text_overflow([(gone, texts, cast_column(texts, gone))]).to_pylist() == ['{"!xgone":"e9"}']


def test_without_overflow_the_hidden_text_is_null() -> None:
    """The column has as many rows as the others, or the given number."""
    texts = pa.array(["1.00", "2.00"])
    assert text_overflow([(column("numeric"), texts, Cast(texts, None))]).to_pylist() == [None, None]
    assert text_overflow([], 3).to_pylist() == [None, None, None]
    with pytest.raises(ValueError, match="number of rows"):
        text_overflow([])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_octets_that_are_not_utf8_are_malformed(kind: str) -> None:
    """Invalid octets of every kind are refused among valid ones."""
    good = VALUES[kind](random.Random(3)).encode()
    texts = pa.array([good, b"\xff", None, b"caf\xe9", good], pa.binary())
    result = cast_column(texts, column(kind))
    assert result.malformed is not None
    assert result.malformed.to_pylist() == [False, True, False, True, False]
    assert repr(result.values[4]) == repr(cast_column(texts[4:], column(kind)).values[0])


def test_the_settings_that_make_the_texts_are_pinned() -> None:
    """The output functions read these; lake/FORMAT.md names them."""
    expected = {"DateStyle": "ISO", "IntervalStyle": "postgres", "TimeZone": "UTC", "extra_float_digits": "1"}
    assert expected.items() <= PINNED_SETTINGS.items()
    assert PINNED_SETTINGS["bytea_output"] == "hex"
    assert PINNED_SETTINGS["client_encoding"] == "UTF8"
