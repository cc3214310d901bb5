"""Values of every PostgreSQL type for the tests of the exact forms: extremes first, then random ones.

Each value is text as PostgreSQL reads it, or None for NULL.
"""

from __future__ import annotations

import random
import struct
import unicodedata
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

Text: TypeAlias = "str | None"

# PostgreSQL's own definitions that the columns below need.
DEFINITIONS = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'so "happy"');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN whole AS int CHECK (VALUE IS NULL OR VALUE > -100);
CREATE DOMAIN price AS numeric(10, 3);
CREATE DOMAIN ratio AS float8;
CREATE DOMAIN label AS char(4);
CREATE DOMAIN temper AS mood;
CREATE DOMAIN numbers AS int[];
"""

_TEXTS = (
    "", " ", "~", "1:a", "NULL", "null", "NaN", "\\N", "\\.", "a\tb\nc\rd", '"', "'", "\\", '{"x": ["\\u00e9"]}', "é",
    unicodedata.normalize("NFD", "é"), "ﬀ", "\u00a0", "\U0001f600", "\u200d", "\ufeff", "\ufffd", "\x01\x1f\x7f",
    "日本語", "x" * 9000, "é" * 300, "trailing  ", "/", "a" * 10 + "\u2028",
)  # fmt: skip
_FLOATS = ("0", "-0", "1", "-1", "NaN", "Infinity", "-Infinity", "0.1", "1e15", "1e16", "123456789.123", "1e-5")
_DATES = (
    "0001-01-01", "0001-01-01 BC", "0044-03-15 BC", "4713-11-24 BC", "0999-12-31", "1582-10-04", "1582-10-05",
    "1582-10-15", "1600-02-29", "1900-01-01", "1969-12-31", "1970-01-01", "2000-02-29", "9999-12-31", "10000-01-01",
    "5874897-12-31", "infinity", "-infinity",
)  # fmt: skip
_TIMES = (
    "0001-01-01 00:00:00", "0001-01-01 00:00:00.000001", "0044-03-15 12:00:00 BC", "4713-11-24 00:00:00 BC",
    "1582-10-10 01:02:03.4", "1883-11-18 12:03:57.999999", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00",
    "2024-03-10 02:30:00", "2024-11-03 01:30:00.12", "2016-12-31 23:59:59.9", "9999-12-31 23:59:59.999999",
    "10000-01-01 00:00:00", "294276-12-31 23:59:59.999999", "infinity", "-infinity",
)  # fmt: skip


# Values of a numeric, and of arrays of it, that the configuration pins to decimal(12, 4).
PINNED: list[Text] = ["1.5", "1.50000", "0", "-0.0001", "12345678.1234", "123456789", "0.00001", "NaN", "Infinity"]
PINS: list[Text] = ["{1.5,1.50000,NULL}", "{}", "{0,12345678.1234}", "{1,NaN}", "{123456789}", "{0.00001}", "{{1}}"]


def columns(seed: int, count: int, server_version: int) -> dict[str, list[Text]]:
    """Return values for each column type (as in CREATE TABLE): extremes, then random up to `count`; a NULL in each.

    The types are those that a server of this version (as 180001) has.
    """
    rnd, refused = random.Random(seed), _SINCE_15 if server_version < 150_000 else frozenset()
    result = {sql_type: [None, *extremes] for sql_type, extremes in EXTREMES.items() if sql_type not in refused}
    for sql_type, values in result.items():
        draw = _RANDOM.get(sql_type)
        while len(values) < count:
            values.append(None if draw is None or rnd.random() < 0.03 else draw(rnd))
    return result | {f"{sql_type}[]": _arrays(rnd, result[sql_type], count) for sql_type in ARRAYS_OF}


def array_text(values: Sequence[Text], delimiter: str = ",") -> str:
    """An array as PostgreSQL reads it."""
    escaped = ("NULL" if v is None else '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return "{" + delimiter.join(escaped) + "}"


def _arrays(rnd: random.Random, values: list[Text], count: int) -> list[Text]:
    """Empty, one of all the type's extremes, forms that no list has, each extreme alone, then random ones."""
    few = [v for v in values if v is not None and len(v) < 1000]
    one = array_text(few[:1])
    result: list[Text] = [None, "{}", "{NULL}", array_text([*few, None]), f"{{{one},{one}}}", f"[0:0]={one}"]
    result += [array_text([v]) for v in dict.fromkeys(values)][: count - len(result)]
    while len(result) < count:
        result.append(None if rnd.random() < 0.03 else array_text(rnd.choices(values, k=rnd.randrange(5))))
    return result


def _float8(rnd: random.Random) -> Text:
    return repr(float(struct.unpack(">d", rnd.getrandbits(64).to_bytes(8, "big"))[0]))


def _float4(rnd: random.Random) -> Text:
    bits = rnd.getrandbits(32) if rnd.random() < 0.8 else rnd.getrandbits(23)
    return repr(float(struct.unpack(">f", bits.to_bytes(4, "big"))[0]))


def _numeric(precision: int, scale: int) -> Callable[[random.Random], Text]:
    def draw(rnd: random.Random) -> Text:
        digits = rnd.randrange(10 ** rnd.randint(1, precision))
        return f"{Decimal(rnd.choice((1, -1)) * digits).scaleb(-scale, None):f}"

    return draw


def _text(rnd: random.Random) -> Text:
    alphabet = "ab \"'\\,:~{}\n\té\u0301日\U0001f600"
    return "".join(rnd.choice(alphabet) for _ in range(rnd.randrange(20)))


def _day(rnd: random.Random) -> Text:
    return (date(1, 1, 1) + timedelta(days=rnd.randrange(3652058))).isoformat()


def _moment(rnd: random.Random) -> Text:
    micros = rnd.randrange(10**6) if rnd.random() < 0.5 else rnd.randrange(10) * 100_000
    return (datetime(1, 1, 1) + timedelta(seconds=rnd.randrange(315537897599), microseconds=micros)).isoformat(" ")  # noqa: DTZ001  (the zone is what is tested)


def _integer(bits: int) -> Callable[[random.Random], Text]:
    return lambda rnd: str(rnd.getrandbits(rnd.randint(1, bits)) - (1 << (bits - 1)))


# The types whose arrays are typed too, domains over them included.
ARRAYS_OF = (
    "bool", "int2", "int4", "int8", "float4", "float8", "ratio", "numeric(20,10)", "numeric(38,38)", "numeric(9,2)",
    "numeric", "price", "text", "char(5)", "label", "varchar(12)", "name", "uuid", "bytea", "date", "timestamp",
    "timestamptz", "mood", "temper", "whole",
)  # fmt: skip

# Types that PostgreSQL 14 refuses: their scale is not between 0 and the precision.
_SINCE_15 = frozenset({"numeric(5,-2)", "numeric(3,7)"})

_RANDOM: dict[str, Callable[[random.Random], Text]] = {
    "int2": _integer(16),
    "int4": _integer(32),
    "int8": _integer(64),
    "float4": _float4,
    "float8": _float8,
    "numeric(20,10)": _numeric(20, 10),
    "numeric(38,38)": _numeric(38, 38),
    "numeric(38,0)": _numeric(38, 0),
    "numeric(9,2)": _numeric(9, 2),
    "numeric": _numeric(30, 12),
    "text": _text,
    "bytea": lambda rnd: "\\x" + rnd.randbytes(rnd.randrange(12)).hex(),
    "uuid": lambda rnd: str(UUID(bytes=rnd.randbytes(16))),
    "date": _day,
    "timestamp": _moment,
    "timestamptz": lambda rnd: f"{_moment(rnd)}{rnd.choice(('+00', '-03:30', '+14'))}",
}

EXTREMES: dict[str, tuple[Text, ...]] = {
    "bool": ("t", "f"),
    "int2": ("0", "-32768", "32767"),
    "int4": ("0", "-2147483648", "2147483647"),
    "int8": ("0", "-9223372036854775808", "9223372036854775807"),
    "float4": (*_FLOATS, "1e-45", "-1e-45", "1.1754944e-38", "1.1754942e-38", "3.4028235e38", "16777217"),
    "float8": (*_FLOATS, "5e-324", "-5e-324", "2.2250738585072014e-308", "2.225073858507201e-308",
               "1.7976931348623157e308", "0.30000000000000004", "9007199254740993"),
    "ratio": ("NaN", "-0", "0.1"),
    "numeric(20,10)": ("0", "-0.0000000001", "0.0000001", "1234567890.123456789", "NaN", "9999999999.9999999999"),
    "numeric(38,38)": ("0", "0.00000000000000000000000000000000000001", "-0.99999999999999999999999999999999999999"),
    "numeric(38,0)": ("0", "99999999999999999999999999999999999999", "-1"),
    "numeric(9,2)": ("0", "-1234567.89", "NaN"),
    "numeric(45,3)": ("1e41", "-0.001", "NaN"),
    "numeric(5,-2)": ("12345", "-99900"),
    "numeric(3,7)": ("0.0000123",),
    "numeric": ("0", "0.000", "1.50", "1e40", "-1e-20", "NaN", "Infinity", "-Infinity"),
    "price": ("0", "1.5", "-1234567.891", "NaN"),
    "text": _TEXTS,
    "bpchar": ("", "a", "a  ", "é "),
    "char(5)": ("", "a", "a    ", "éé", "12345"),
    "label": ("", "ab"),
    "varchar(12)": ("", "a ", "日本語日本語日本語日本語"),
    "name": ("", "Ünïcode name"),
    '"char"': ("", "x", "\\200"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    "bytea": ("\\x", "\\x00", "\\xdeadbeef00ff", "\\x" + "5c" * 500),
    "date": _DATES,
    "timestamp": _TIMES,
    "timestamptz": (*_TIMES[:3], *_TIMES[4:13], "294276-12-31 23:59:59.999999+00", "infinity", "-infinity",
                    "2024-03-10 02:30:00-08", "0001-01-01 00:00:00-05", "0001-01-01 00:00:00+05",
                    "9999-12-31 23:00:00-05"),
    "temper": ("ok", 'so "happy"'),
    "mood": ("sad", "ok", 'so "happy"'),
    "whole": ("0", "2147483647"),
    "json": ('{"a": 1,  "a": 2}', "null", '"é\\u00e9"', "[1, 2.50]"),
    "jsonb": ('{"b": 1, "a": [1.50, null]}', "null", '"é\\u00e9"'),
    "time": ("00:00:00", "24:00:00", "12:34:56.7"),
    "timetz": ("12:34:56.7-08", "00:00:00+15:59"),
    "interval": ("1 year -2 months 3 days -04:05:06.789", "0", "-1 day"),
    "inet": ("192.168.0.1", "192.168.0.1/24", "::1"),
    "cidr": ("10.0.0.0/8",),
    "macaddr": ("08:00:2b:01:02:03",),
    "int4range": ("[1,5)", "empty", "(,)"),
    "tstzrange": ("[2024-01-01 00:00:00+02,infinity)",),
    "int4multirange": ("{[1,3),[5,9)}", "{}"),
    "bit(4)": ("0101",),
    "varbit": ("", "10101"),
    "tsvector": ("'a':1A 'b''c'",),
    "point": ("(0.1,-0)", "(NaN,Infinity)"),
    "money": ("-12.34",),
    "oid": ("4294967295",),
    "regclass": ("pg_catalog.pg_class",),
    "pg_lsn": ("16/B374D848",),
    "jsonb[]": ('{"{\\"a\\": 1}",NULL}',),
    "interval[]": ('{"1 day",NULL}',),
    "int2vector": ("1 2 3", ""),
    "oidvector": ("1 2 3",),
    "numbers": ("{1,NULL}", "{{1},{2}}", "{}"),
    "pair": ("(,)", '(1,"a,b")', '(2,"")'),
    "pair[]": ('{"(1,a)","(,)"}',),
}  # fmt: skip
