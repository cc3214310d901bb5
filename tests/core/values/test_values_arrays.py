"""Arrays: what a list holds, what it does not, and what is no array at all."""

from __future__ import annotations

import math
import random
import re
from datetime import date, datetime
from decimal import Decimal

import pytest

from lakeproof.values.types import KINDS, arrow_type
from tests.core.pgoutput.pgoutput_random import VALUES, array_text
from tests.core.values.casting import cast, column


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int4[]", "{}", []),
        ("int4[]", "{NULL}", [None]),
        ("int4[]", "{-2147483648,NULL,7}", [-(2**31), None, 7]),
        ("bool[]", "{t,f,NULL}", [True, False, None]),
        ("numeric[]", "{0.00,-12.50}", [Decimal("0.00"), Decimal("-12.50")]),
        ("text[]", '{"",NULL,"NULL","null",nul}', ["", None, "NULL", "null", "nul"]),
        ("text[]", r'{"a,b","{c}","\"","\\","\\\"x"," "}', ["a,b", "{c}", '"', "\\", '\\"x', " "]),
        ("text[]", '{"\n\t",é,🜁,\x01}', ["\n\t", "é", "🜁", "\x01"]),
        ("bpchar[]", '{"a   ",b}', ["a   ", "b"]),
        ("bytea[]", r'{"\\x","\\x00ff"}', [b"", b"\x00\xff"]),
        ("date[]", "{0001-01-01,NULL}", [date(1, 1, 1), None]),
        ("timestamp[]", '{"0001-01-01 00:00:00"}', [datetime(1, 1, 1)]),  # noqa: DTZ001  (it has no zone)
        ("float8[]", "{-0,Infinity,5e-324}", [-0.0, math.inf, 5e-324]),
    ],
)
def test_an_array_of_one_dimension_is_cast_exactly(kind: str, text: str, value: object) -> None:
    """Quotes and escapes go, NULL without quotes is one; beside a NULL array and an empty one."""
    result = cast(kind, text, None, "{}")
    assert repr(result.values.to_pylist()) == repr([value, None, []])
    assert result.values.type == arrow_type(column(kind))
    assert result.fits


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int4[]", "[0:1]={1,2}"),
        ("int4[]", "[-3:-3]={NULL}"),
        ("int4[]", "{{1,2},{3,4}}"),
        ("int4[]", "[1:1][0:1]={{1,2}}"),
        ("text[]", '{{"}",a},{"\\"",NULL}}'),
        ("date[]", "{2024-01-01,infinity}"),
        ("date[]", '{"0044-03-15 BC"}'),
        ("numeric[]", "{1.00,NaN}"),
        ("timestamptz[]", '{"10000-01-01 00:00:00+00"}'),
    ],
)
def test_an_array_that_no_list_holds_is_null_and_marked(kind: str, text: str) -> None:
    """The arrays beside it keep all their elements."""
    good = array_text([VALUES[kind.removesuffix("[]")](random.Random(1))] * 3)
    result = cast(kind, good, text, None, good)
    assert [value is None for value in result.values.to_pylist()] == [False, True, True, False]
    assert len(result.values[3]) == 3
    assert result.overflow is not None
    assert result.overflow.to_pylist() == [False, True, False, False]
    assert result.malformed is None
    # Parquet has no elements in a NULL.
    assert len(result.values.values) == 6


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("int4[]", ["", "{", "}", "{1", "1}", "{1,}", "{,1}", "{1,,2}", "{1 ,2}", " {1}", "{1}\n", "{1}}", "{x}", "{1}{2}",
                    "[0:1]{1,2}", "[0]={1}", "{2147483648}", '{""}', "null", "{1;2}"]),
        ("text[]", ['{"}', '{"a}', '{a"b}', '{a"}', r'{"a\}', r"{a\b}", '{"a"b}', '{""""}', "{a b}", "{a\tb}", r'{"\n"}']),
        ("date[]", ["{2023-02-29}", "{2024-01-01,today}"]),
    ],
)  # fmt: skip
def test_what_is_no_array_of_the_kind_is_malformed(kind: str, texts: list[str]) -> None:
    """The braces, quotes and elements of a good one beside it stay its own."""
    good = array_text([VALUES[kind.removesuffix("[]")](random.Random(1))] * 2)
    result = cast(kind, good, *texts, None, good)
    assert result.malformed is not None
    assert result.malformed.to_pylist() == [False, *[True] * len(texts), False, False]
    assert [len(v) for v in result.values.to_pylist() if v is not None] == [2, 2]


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if kind.endswith("[]")))
def test_arrays_are_cast_as_their_elements_are(kind: str) -> None:
    """Random arrays are compared with the element's cast behind a reader that goes character by character."""
    rng = random.Random(kind)
    texts = [VALUES[kind](rng) if rng.random() > 0.1 else None for _ in range(300)]
    result = cast(kind, *texts)
    result.values.validate(full=True)
    of = kind.removesuffix("[]")
    overflow = result.overflow.to_pylist() if result.overflow is not None else [False] * len(texts)
    for text, value, over in zip(texts, result.values.to_pylist(), overflow, strict=True):
        elements = None if text is None or text.startswith(("[", "{{")) else read_array(text)
        own = None if elements is None else cast(of, *elements)
        assert over is (text is not None and (own is None or own.overflow is not None))
        assert repr(value) == repr(None if own is None or over else own.values.to_pylist())


def read_array(text: str) -> list[str | None]:
    """The elements, one character after the other."""
    elements: list[str | None] = []
    position = 1
    while text[position] != "}":
        if text[position] == ",":
            position += 1
        if text[position] != '"':
            actual = re.compile(r"[^,}]+").match(text, position)
            assert actual is not None
            elements.append(None if actual[0] == "NULL" else actual[0])
            position = actual.end()
            continue
        element, position = "", position + 1
        while text[position] != '"':
            position += text[position] == "\\"
            element, position = element + text[position], position + 1
        elements.append(element)
        position += 1
    return elements
