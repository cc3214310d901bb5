"""Results for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

import pytest

from lakeproof.cli.lake_commands import proof_page
from lakeproof.cli.results import format_bytes, format_table, from_json, printable, to_json
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.proof.result import ProofReport, TableProof, TableRepair
from lakeproof.schema import LeftOutColumn


class Colour(Enum):
    """An enum for the test."""

    RED = "red"


@dataclass(frozen=True, slots=True)
class Example:
    """A report as the engine makes them."""

    position: Lsn
    tables: Mapping[TableName, int]
    colour: Colour = Colour.RED
    parts: tuple[int, ...] = (1, 2)
    names: frozenset[str] = frozenset({"b", "a"})
    number: int = CycleNumber(7)
    nothing: None = None
    path: Path = Path("/a/b")
    time: datetime = field(default=datetime(2026, 1, 2, tzinfo=timezone.utc))


def test_a_report_becomes_json() -> None:
    """The report has every kind of value that reports may have."""
    document = to_json(Example(Lsn(10), {TableName("a b", "c"): 1}))
    assert json.loads(json.dumps(document)) == {
        "position": "0/A",
        "tables": {'"a b".c': 1},
        "colour": "red",
        "parts": [1, 2],
        "names": ["a", "b"],
        "number": 7,
        "nothing": None,
        "path": "/a/b",
        "time": "2026-01-02T00:00:00.000000Z",
    }


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), object(), Example, 1j])
def test_what_has_no_json_form_is_an_error(value: object) -> None:
    """A value of an unknown class is not silently turned into text."""
    with pytest.raises(TypeError, match="no JSON form"):
        to_json(value)


def test_a_grid_parts_thousands_and_aligns() -> None:
    """Numbers to the right, texts to the left, None as a dash."""
    text = format_table(("table", "rows", "equal"), [("shop.orders", 1_234_567, True), ("x", None, False)])
    assert text.splitlines() == [
        "table             rows  equal",
        "-----------  ---------  -----",
        "shop.orders  1,234,567  yes",
        "x                    -  no",
    ]


def test_an_empty_grid_has_its_headings() -> None:
    """A table without rows is valid."""
    assert format_table(("a", "b"), []).splitlines() == ["a  b", "-  -"]


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\rb", "a\x07b", "a\u202eb", "a\u2028b"])
def test_nothing_that_moves_a_cursor_is_printed(text: str) -> None:
    """A table's name may hold anything."""
    assert printable(text).startswith("a?")
    assert printable(text).isprintable()
    assert len(format_table(("name",), [(text,)]).splitlines()) == 3


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (12_345_678, "12.3 MB"),
        (5 * 10**15, "5000.0 TB"),
        (-2_000, "-2.0 kB"),
    ],
)
def test_bytes_are_readable(count: int | None, text: str) -> None:
    """Units are powers of ten."""
    assert format_bytes(count) == text


def test_a_proof_names_unpublished_columns_once() -> None:
    """Each table with such columns has one line about them, before the reasons."""
    lines, items = TableName("public", "lines"), TableName("public", "items")
    left_out = (LeftOutColumn("amount", "stored"),)
    tables = {
        items: TableProof("equal", 2, 2),
        lines: TableProof("differs", 3, 2, reason="one row is missing", left_out=left_out),
    }
    page = proof_page(ProofReport("shop", Lsn(10), tables)).splitlines()
    assert page[-2:] == [
        "public.lines: columns not published, so neither in the lake nor compared: amount (generated)",
        "public.lines: one row is missing",
    ]
    assert sum("columns not published" in line for line in page) == 1


def test_a_repair_has_a_line_for_each_table() -> None:
    """By keys or whole, with the reason; and a reader of the JSON gets it all back."""
    lines, items = TableName("public", "lines"), TableName("public", "items")
    tables = {
        items: TableProof("equal", 2, 2, repair=TableRepair("keys", 3, 1)),
        lines: TableProof("equal", 9, 9, repair=TableRepair("whole", None, 9, "it has no key")),
    }
    report = ProofReport("shop", Lsn(10), tables)
    assert proof_page(report).splitlines()[-2:] == [
        "public.items: repaired by 3 keys, 1 row read",
        "public.lines: copied whole, 9 rows read: it has no key",
    ]
    # None of these is in the report, and their modules load Spark.
    names: dict[str, type] = dict.fromkeys(("DifferingKey", "HistoryProof", "ViewProof"), object)
    assert from_json(ProofReport, to_json(report), names) == report
