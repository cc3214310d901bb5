"""A result that was written as JSON is the report again, for every report that Dagster's assets read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from lakeproof.cli.results import from_json, to_json
from lakeproof.commands.expect import ExpectReport
from lakeproof.commands.maintain import Maintained
from lakeproof.expectations.evaluate import Expected
from lakeproof.lake.cycle.runner import CutReport, TableCut
from lakeproof.lake.delta.files.needed import Unread
from lakeproof.lake.records.documents import NOBODY
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.landing.retention import SpaceReclaimed
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.proof.compare import DifferingKey
from lakeproof.proof.lake.history import HistoryProof
from lakeproof.proof.result import LakeProof, ProofReport, TableProof
from lakeproof.schema import LeftOutColumn
from lakeproof.views.audit import ViewProof
from lakeproof.views.round import ViewReport

TABLE, ODD, LSN = TableName("shop", "orders"), TableName("my shop", 'odd."name"'), Lsn.parse("1/16B3748")
NAMES = {kind.__name__: kind for kind in (DifferingKey, HistoryProof, ViewProof)}
HELD = Held(LSN, next(iter(HeldCause)), next(iter(WayOut)), {"table": "x"})
REPORTS: list[tuple[Any, Any]] = [
    (
        list[CutReport],
        [
            CutReport(
                CycleNumber(7),
                LSN,
                {
                    TABLE: TableCut(3, 2, 1, 4, 5, NOBODY, features={"deletionVectors": "why"}),
                    ODD: TableCut(0, 0, 0, 1, 1, NOBODY, 9),
                },
                {ODD: HELD},
                Incarnation(2),
                {ODD: "column a was added"},
            )
        ],
    ),
    (
        list[ViewReport],
        [
            ViewReport("total", CycleNumber(3), 4, 5, 6, {"shop": (CycleNumber(7), LSN)}),
            ViewReport("other", None, None, 0, 0, stands_still="why"),
        ],
    ),
    (
        ProofReport,
        ProofReport(
            "shop",
            LSN,
            {
                TABLE: TableProof("equal", 1, 1),
                ODD: TableProof(
                    "differs",
                    2,
                    None,
                    3,
                    (DifferingKey({"id": "1", "b": None}, 1, 0),),
                    "why",
                    (LeftOutColumn("g", ""),),
                ),
            },
            LakeProof(7, Lsn(7), {TABLE: HistoryProof("equal", 5)}, {"total": ViewProof("blocked", "why")}),
        ),
    ),
    (ProofReport, ProofReport("shop", None, {})),
    (
        Maintained,
        Maintained(
            (CycleNumber(1),),
            (TABLE,),
            (),
            (ODD,),
            ("total",),
            {"cuts": SpaceReclaimed(3, 4)},
            {"shop.orders": Unread("why", "now")},
        ),
    ),
    (
        ExpectReport,
        ExpectReport(
            "shop", LSN, {ODD: [Expected("unique", passed=False, counts={"n": 1, "share": 0.5, "error": "e"})]}
        ),
    ),
]


@pytest.mark.parametrize(("kind", "report"), REPORTS)
def test_what_was_written_is_read_again(kind: Any, report: Any) -> None:
    """With every type that the report has, and after a way as text."""
    assert from_json(kind, json.loads(json.dumps(to_json(report))), NAMES) == report


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda document: document.pop("position"), "position is missing"),
        (lambda document: document.update(position=7), r"position is not what it should be \(str\)"),
        (lambda document: document["tables"].update({"shop.orders": 7}), r"tables\[shop.orders\] is not"),
        (lambda document: document["tables"]["shop.orders"].update(status="odd"), "status is none of equal"),
        (lambda document: document["tables"]["shop.orders"].update(source_rows=True), "source_rows is not"),
    ],
)
def test_what_does_not_fit_is_named(change: Any, place: str) -> None:
    """Nothing is filled in or converted."""
    document = to_json(ProofReport("shop", LSN, {TABLE: TableProof("equal", 1, 1)}))
    change(document)
    with pytest.raises(ValueError, match=place):
        from_json(ProofReport, document, NAMES)


@dataclass(frozen=True)
class Copy:
    """A report with numbers."""

    seconds: float
    share: float | None


def test_a_whole_number_is_a_float() -> None:
    """A function that returns a float may return one without a fraction."""
    report = Copy(3, None)
    assert from_json(Copy, json.loads(json.dumps(to_json(report)))) == report


def test_a_newer_command_may_say_more() -> None:
    """A field that the reader does not know is left alone."""
    document = {**to_json(ProofReport("shop", None, {})), "colour": "green"}
    assert from_json(ProofReport, document, NAMES) == ProofReport("shop", None, {})
