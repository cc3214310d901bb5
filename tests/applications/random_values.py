"""Random values of any PostgreSQL type, as SQL: of domains, enums, composites, arrays and ranges as of the types built in.

Which columns there are is for `source_tables.py`, and what is done with the values for `mutator.py`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.sql import Literal

_TYPES = """
SELECT t.oid, t.typname, t.typtype, t.typbasetype, format_type(t.typbasetype, nullif(t.typtypmod, -1)),
    CASE WHEN t.typcategory = 'A' AND t.typtype = 'b' THEN t.typelem ELSE 0 END, t.oid::regtype::text,
    coalesce((SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid), '{}'),
    coalesce((SELECT array_agg(a.atttypid ORDER BY a.attnum) FROM pg_attribute a WHERE t.typtype = 'c'
        AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '{}')
FROM pg_type t
"""
_WORDS = (
    "", " ", "a", "NULL", "null", "\\N", 'quo"te', "it''s", "back\\slash", "new\nline", "tab\t", "ünï", "e\u0301",
    "🦆", "{}", "{a,b}", "(1,2)", "x  ", "  x", "%", "~", "ZZ", "zz", "\u00df", "\x7f", "#1#",
)  # fmt: skip
_FLOATS = ("0", "-0", "NaN", "Infinity", "-Infinity", "1e-30", "0.1", "3.1415927", "-2.5e17")
_DAYS = ("2024-02-29", "infinity", "-infinity", "0044-03-15 BC", "9999-12-31", "10000-01-01", "1582-10-10")
_TIMES = (
    "2024-02-29 23:59:59.999999",
    "infinity",
    "0001-01-01 00:00:00",
    "1969-12-31 23:59:59.5",
    "20000-01-01 00:00:00",
)
_JSON = ('{"b": 1, "a": [1.0, null]}', "null", "[]", '"\\u00e9"', "1e400", '{"a": {"b": "c\\n"}}')
_LARGE = 9000
# Nested composites and arrays end somewhere.
_DEPTH_MAX = 4


@dataclass(frozen=True, slots=True)
class _Type:
    name: str
    kind: str
    base: int
    base_text: str
    element: int
    text: str
    labels: list[str]
    attributes: list[int]


class RandomValues:
    """Values of the types that a database has; `reload` reads them again after DDL."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._types: dict[int, _Type] = {}

    def reload(self, connection: psycopg.Connection[Any]) -> None:
        """Read the types."""
        rows = connection.execute(_TYPES).fetchall()
        self._types = {oid: _Type(*facts) for oid, *facts in rows}

    def base(self, oid: int) -> str:
        """Return the name of the type below all domains."""
        kind = self._types[oid]
        return self.base(kind.base) if kind.kind == "d" else kind.name

    def is_enum(self, oid: int) -> bool:
        """True if it is an enum itself, not a domain of one."""
        return self._types[oid].kind == "e"

    def value(self, oid: int, text: str, *, null: float = 0.12, few: bool = False) -> str:
        """Return a value of the type `oid`, which is written as `text`; `few`: one of the few dozen that keys have."""
        if self.rng.random() < null:
            return f"NULL::{text}"
        return f"({self._bare(oid, few, 0)})::{text}"

    def large(self, oid: int) -> str | None:
        """Return a value that is stored out of line, None if the type has none that this class can make."""
        name = self.base(oid)
        size = self.rng.choice((3000, _LARGE, 3 * _LARGE))
        letters = "".join(self.rng.choices("abcdefghijklmnopqrstuvwxyz0123456789 é", k=size))
        if name in {"text", "varchar", "citext"}:
            return _literal(letters)
        if name == "jsonb":
            return f"jsonb_build_object('k', {_literal(letters)})"
        if name == "bytea":
            return f"decode('{self.rng.randbytes(size).hex()}', 'hex')"
        if name == "_text":
            return f"string_to_array({_literal(letters)}, 'e')"
        return None

    def _bare(self, oid: int, few: bool, depth: int) -> str:
        kind, rng = self._types[oid], self.rng
        if kind.kind == "d":
            return f"({self._bare(kind.base, few, depth)})::{kind.text}"
        if kind.kind == "e":
            return _literal(rng.choice(kind.labels)) + f"::{kind.text}"
        if kind.kind == "c":
            parts = [self._part(a, depth) for a in kind.attributes]
            return f"ROW({', '.join(parts)})::{kind.text}"
        if kind.element:
            parts = [self._part(kind.element, depth) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
            listed = f"ARRAY[{', '.join(parts)}]::{kind.text}"
            return f"ARRAY[{listed}, {listed}]" if parts and rng.random() < 0.1 else listed
        if kind.kind in {"r", "m"}:
            return f"'{self._range(kind.name)}'::{kind.text}"
        make = _MAKE.get(kind.name)
        if make is None:
            raise NotImplementedError(f"a value of {kind.text}")
        if few and kind.name in {"int2", "int4", "int8", "numeric"}:
            return str(rng.randrange(1, 60))
        if few and kind.name in {"text", "varchar", "bpchar", "citext", "name"}:
            return _literal(f"k{rng.randrange(40)}" if rng.random() < 0.8 else rng.choice(_WORDS))
        return f"{make(rng)}::{kind.text}"

    def _part(self, oid: int, depth: int) -> str:
        if depth >= _DEPTH_MAX or self.rng.random() < 0.15:
            return f"NULL::{self._types[oid].text}"
        return f"({self._bare(oid, False, depth + 1)})::{self._types[oid].text}"

    def _range(self, name: str) -> str:
        low = self.rng.randrange(50)
        high = low + self.rng.randrange(20)
        if "num" in name or "int" in name:
            one = self.rng.choice((f"[{low},{high})", f"({low},{high}]", "empty", f"[{low},)", "(,)"))
        else:
            one = self.rng.choice(
                (f"[2024-01-{low % 28 + 1:02},2025-02-03)", "empty", "(,2020-01-01]", "[2020-01-01,infinity)")
            )
        return "{" + one + "}" if name.endswith("multirange") else one


def _literal(text: str) -> str:
    return Literal(text).as_string(None)


def _word(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return _literal(rng.choice(_WORDS))
    return _literal("".join(rng.choices("abc XYZ09é", k=rng.randrange(1, 24))))


def _one_of(*texts: str) -> Callable[[random.Random], str]:
    return lambda rng: _literal(rng.choice(texts))


def _number(limit: int) -> Callable[[random.Random], str]:
    return lambda rng: f"({rng.choice((0, 1, -1, limit, -limit - 1, rng.randrange(-1000, 1000), rng.randrange(100)))})"


def _money(rng: random.Random) -> str:
    return f"({rng.randrange(-(10**9), 10**9)}::numeric / 100)"


_MAKE: Mapping[str, Callable[[random.Random], str]] = {
    "bool": _one_of("t", "f"),
    "int2": _number((1 << 15) - 1),
    "int4": _number((1 << 31) - 1),
    "int8": _number((1 << 63) - 1),
    "oid": lambda rng: f"'{rng.randrange(1 << 32)}'",
    "float4": _one_of(*_FLOATS),
    "float8": _one_of(*_FLOATS, "1e-300", "5e-324"),
    "numeric": lambda rng: (
        f"'{rng.choice(('0', '1', '1.0', '-5', 'NaN', '0.005', str(rng.randrange(-99999, 99999) / 100)))}'"
    ),
    "money": _money,
    "text": _word,
    "varchar": _word,
    "citext": _word,
    "bpchar": _word,
    "name": _word,
    "char": lambda rng: f"'{rng.choice('abcXYZ')}'",
    "uuid": lambda rng: f"'{uuid.UUID(int=rng.getrandbits(128))}'",
    "bytea": lambda rng: f"'\\x{rng.randbytes(rng.randrange(6)).hex()}'",
    "date": _one_of(*_DAYS),
    "timestamp": _one_of(*_TIMES),
    "timestamptz": _one_of(*(f"{t}+02" if "inf" not in t else t for t in _TIMES)),
    "time": _one_of("00:00", "24:00:00", "12:34:56.789"),
    "timetz": _one_of("00:00+00", "24:00:00-12", "12:34:56.789+05:30"),
    "interval": _one_of("1 mon -2 days 03:04:05.6", "0", "-1 year", "178000 years"),
    "json": _one_of(*_JSON, ' { "a" : 1 , "a":2 } '),
    "jsonb": _one_of(*(j for j in _JSON if "400" not in j), "{}"),
    "inet": _one_of("10.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32"),
    "cidr": _one_of("10.0.0.0/8", "::/0"),
    "macaddr": _one_of("08:00:2b:01:02:03"),
    "point": _one_of("(1,2)", "(1e10,-0.1)"),
    "box": _one_of("(1,1),(0,0)"),
    "bit": _one_of("1", "0"),
    "varbit": _one_of("", "101"),
    "tsvector": _one_of("", "a:1A b:2", "'it''s'"),
    "xml": _one_of("<a>b</a>", "x &amp; y"),
    "hstore": _one_of("", "a=>1,b=>NULL"),
}
