"""The compiled loops against the caster: the same values if both give any, and what is usual takes the fast road."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lakeproof.names import Oid
from lakeproof.schema import Column
from lakeproof.values.cast import cast_column
from lakeproof.values.parse.spans import NULL, UNCHANGED, Spans, cast_spans
from lakeproof.values.types import arrow_type, decimal_typmod
from tests.core.pgoutput.pgoutput_random import KIND_OIDS, VALUES

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
PAIRS = [(10, 2), (38, 0), (38, 38), (18, 4), (19, 3), (1, 1), (5, 0), (37, 20)]
# What stands around the texts must not matter, nor be read.
AROUND = b"0-9.+:t\\x\xff"


def column(kind: str, typmod: int = -1) -> Column:
    """A column of a kind; a numeric is numeric(10,2) if nothing else is given."""
    typmod = decimal_typmod(10, 2) if kind == "numeric" and typmod == -1 else typmod
    return Column("a", Oid(KIND_OIDS[kind]), typmod, kind, kind, 1, False)


def spans(texts: Sequence[bytes | None], rng: random.Random) -> Spans:
    """The texts in a buffer, in any order and with other bytes around them."""
    data = bytearray(rng.choice(AROUND) for _ in range(rng.randrange(3)))
    start, size = np.zeros(len(texts), np.int32), np.zeros(len(texts), np.int32)
    for i in rng.sample(range(len(texts)), len(texts)):
        text = texts[i]
        start[i], size[i] = len(data), rng.choice([NULL, UNCHANGED]) if text is None else len(text)
        data += text or b""
        data += bytes(rng.choice(AROUND) for _ in range(rng.randrange(3)))
    return Spans(np.frombuffer(bytes(data), np.uint8), start, size, sum(text is None for text in texts))


def assert_same_as_caster(texts: Sequence[bytes | None], of: Column, rng: random.Random) -> bool:
    """True if the fast road took them; the caster then has the same values without overflow."""
    given = spans(texts, rng)
    fast = cast_spans(given, of)
    if fast is None:
        return False
    fast.validate(full=True)
    slow = cast_column(pa.array(texts, pa.binary()), of)
    assert slow.fits
    assert fast.type == slow.values.type == arrow_type(of)
    assert fast.null_count == slow.values.null_count
    if pa.types.is_floating(fast.type):
        assert [repr(value) for value in fast.to_pylist()] == [repr(value) for value in slow.values.to_pylist()]
    assert fast.equals(slow.values)
    return True


USUAL = {
    "bool": ["t", "f"],
    "int2": ["0", "-32768", "32767", "10", "-1"],
    "int4": ["0", "-2147483648", "2147483647", "1000000000"],
    "int8": ["0", "-9223372036854775808", "9223372036854775807", "9223372036854775799", "-9223372036854775799"],
    "float4": ["0", "-0", "1.5", "1e+20", "3.4028235e+38", "1e-45", "16777217", "0.1"],
    "float8": ["0", "-0", "0.1", "5e-324", "1.7976931348623157e+308", "0.30000000000000004", "9007199254740993"],
    "numeric": ["0.00", "-99999999.99", "99999999.99", "1.50", "-0.01", "7", "0007.5"],
    "text": ["", "a", "  ", "\n", "NULL", "ß€🜁", "x" * 5000],
    "bpchar": ["a         "],
    "varchar": ["a"],
    "name": ["pg_class"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "enum": ["größe"],
    "exact_text": ['{"a": 1}'],
    "bytea": ["\\x", "\\x00ff5c78", "\\x" + "ab" * 5000],
    "date": ["0001-01-01", "9999-12-31", "1582-10-10", "2024-02-29", "2000-02-29", "1900-02-28", "1970-01-01"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.000001",
                  "2024-02-29 12:00:00.5", "1970-01-01 00:00:00.12"],
    "timestamptz": ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "1969-12-31 23:59:59.1+00"],
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(KIND_OIDS))
def test_what_postgresql_usually_prints_takes_the_fast_road(kind: str) -> None:
    """Each value alone, all together, and with NULLs at every place of a bitmap's byte."""
    rng = random.Random(kind)
    texts: list[bytes | None] = [text.encode() for text in USUAL[kind]]
    for text in texts:
        assert assert_same_as_caster([text], column(kind), rng)
    assert assert_same_as_caster(texts, column(kind), rng)
    for place in range(17):
        many = (texts * 17)[:17]
        many[place] = many[16 - place] = None
        assert assert_same_as_caster(many, column(kind), rng)
    assert assert_same_as_caster([None] * 9, column(kind), rng)
    assert assert_same_as_caster([], column(kind), rng)


UNUSUAL = {
    "bool": ["", "true", "T", "1", "tf", "t "],
    "int2": ["", "-", "32768", "-32769", "1.0", "1e2", "0x1", "+1", " 1", "1\n", "00", "-0", "NaN", "01", "--1"],
    "int4": ["2147483648", "-2147483649", "1_000"],
    "int8": ["9223372036854775808", "-9223372036854775809", "9" * 19, "-" + "9" * 19, "9" * 20, "1" + "0" * 40],
    "float4": ["", "-", "1e39", "inf", "nan", "+1", "0x1p3", "1e", ".5", "5.", "1e+", "1e+5", "1e+0005", "1e+39", "-1e+39",
               "NaN", "Infinity", "-Infinity", "1e+1a", "1,5"],
    "float8": ["1e+309", "-1e+309", "infinity", "1 ", "NaN"],
    "numeric": ["", "-", ".", "1.", ".5", "1e2", "+1", "1,00", "NaN", "Infinity", "1.00\n", "1.001", "100000000",
                "1.5 ", "1.a"],
    "bytea": ["", "\\", "x", "\\x0", "\\X00", "\\xgg", "\\x0\\", "\\000", "\\xAB", "00", "\\x0`", "\\x:0", "\\x/0"],
    "date": ["", "0000-01-01", "2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10", "2024-04-31", "2024-01-32",
             "2024-01-00", "2024-1-1", "2024-01-01 ", "infinity", "0044-03-15 BC", "12024-01-01",
             "2024/01-01", "2024-01/01", "-024-01-01"],
    "timestamp": ["2024-01-01", "2024-01-01 24:00:00", "2024-01-01 00:60:00", "2024-01-01 00:00", "2024-01-01T00:00:00",
                  "2024-01-01 00:00:00+00", "2024-01-01 00:00:00.", "2024-01-01 00:00:00.1234567",
                  "2024-01-01 23:59:60", "infinity", "2024-01-01 00:00:00 BC", "2024-01-01 00:00:00x1",
                  "2024-01-01 00:00:00.1a", "2024-01-01 00.00:00"],
    "timestamptz": ["2024-01-01 00:00:00", "2024-01-01 00:00:00+01", "2024-01-01 00:00:00-00",
                    "2024-01-01 00:00:00+00:00", "+00", "", "2024-01-01 00:00:00+00 BC",
                    "2024-01-01 00:00:00.+00", "infinity"],
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(UNUSUAL))
def test_what_is_not_usual_is_left_to_the_caster(kind: str) -> None:
    """Alone, and behind a good value and a NULL; but for what the caster takes as the loop does."""
    rng = random.Random(kind)
    for text in UNUSUAL[kind]:
        for texts in ([text.encode()], [USUAL[kind][0].encode(), None, text.encode()]):
            assert not assert_same_as_caster(texts, column(kind), rng), text


@pytest.mark.parametrize("pair", PAIRS)
def test_decimals_of_any_precision_are_the_casters(pair: tuple[int, int]) -> None:
    """Decimals have as many digits as fit, as PostgreSQL prints them, and values near the limits."""
    print(f"LAKEPROOF_SEED={SEED}")  # noqa: T201  (to run a failure again)
    rng = random.Random(SEED)
    precision, scale = pair
    of = column("numeric", decimal_typmod(precision, scale))

    def number(digits: int) -> bytes:
        text = "".join(rng.choices("0123456789", k=digits)).rjust(scale + 1, "0")
        whole, decimals = text[: len(text) - scale], text[len(text) - scale :]
        sign = rng.choice(["", "-"])
        return f"{sign}{whole}.{decimals}".encode() if scale else f"{sign}{whole}".encode()

    usual: list[bytes | None] = [number(rng.randint(1, precision)) for _ in range(300)]
    assert assert_same_as_caster([*usual, number(precision), None], of, rng)
    for _ in range(300):
        assert_same_as_caster([number(rng.randint(1, precision + 2)), rng.choice(usual)], of, rng)


@pytest.mark.parametrize("kind", sorted(KIND_OIDS))
def test_damaged_texts_give_the_casters_values_or_none(kind: str) -> None:
    """Random values with bytes changed, dropped and put in."""
    print(f"LAKEPROOF_SEED={SEED}")  # noqa: T201  (to run a failure again)
    rng = random.Random(f"{SEED} {kind}")
    for _ in range(300):
        texts: list[bytes | None] = [VALUES[kind](rng).encode() if rng.random() > 0.1 else None for _ in range(4)]
        text = bytearray(texts[0] or b"")
        for _ in range(rng.randint(0, 2)):
            position = rng.randrange(len(text) + 1)
            text[position : position + rng.randrange(2)] = bytes(
                [rng.choice(b"0159-+.:eE \\xtfnN\xc3\x80")][: rng.randrange(2)]
            )
        texts[0] = bytes(text)
        assert_same_as_caster(texts, column(kind), rng)


@pytest.mark.parametrize("kind", sorted(KIND_OIDS))
def test_octets_that_are_not_utf8_are_left_to_the_caster(kind: str) -> None:
    """The octets come unchanged, among valid texts."""
    rng = random.Random(kind)
    texts = [USUAL[kind][0].encode(), None, b"caf\xe9"]
    assert not assert_same_as_caster(texts, column(kind), rng)
    assert spans(texts, rng).texts().to_pylist() == texts


def test_a_kind_without_a_loop_is_left_to_the_caster() -> None:
    """Arrays have none, whatever their elements' loop is."""
    other = Column("a", Oid(1), -1, "int4[]", "int4[]", 1, False)
    assert cast_spans(spans([b"x"], random.Random(1)), other) is None
