"""Verdicts on a proof's asset and its check, for each thing that a proof can find, or not come to."""

from __future__ import annotations

import dagster as dg
import pytest

from assets.checks.outcomes import (
    ProofOutcome,
    history_outcome,
    recorded_history,
    recorded_view,
    table_outcome,
    view_outcome,
)
from assets.checks.proof import proof_check_result
from assets.support import metadata as md
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.lake.history import HistoryProof
from lakeproof.proof.record import Compared, LakeProved, Proved
from lakeproof.proof.result import LakeProof, ProofReport, Status, TableProof, TableRepair
from lakeproof.views.audit import ViewProof, ViewStatus

T = TableName("s", "t")
AT = "2026-01-01T00:00:00.000000Z"
HERE = Compared(Incarnation(1), Lsn(100), AT)
WRONG = LakeProved("differs", AT, reason="how", differed_at=AT)
CHECK = dg.AssetCheckKey(dg.AssetKey("t"), "proved_equal")


def _colour(outcome: ProofOutcome) -> str:
    shown = proof_check_result(CHECK, outcome)
    if shown.passed:
        return "green"
    return "red" if shown.severity is dg.AssetCheckSeverity.ERROR else "yellow"


@pytest.mark.parametrize(
    ("status", "differed", "colour", "compared"),
    [
        ("equal", None, "green", True),
        ("differs", HERE, "red", True),
        ("not applicable", None, "yellow", True),
        ("held", None, "yellow", False),
        ("missing", None, "yellow", False),
        ("blocked", None, "yellow", False),
        ("held", HERE, "red", False),
        ("blocked", HERE, "red", False),
        (None, None, "yellow", False),
        (None, HERE, "red", False),
    ],
)
def test_a_table_is_red_until_it_is_found_equal(
    status: Status | None, differed: Compared | None, colour: str, compared: bool
) -> None:
    """Red whether this proof found the difference or an earlier one, whatever kept this one from comparing."""
    tables = {} if status is None else {T: TableProof(status, 7, 7, reason="why")}
    proved = Proved("x", AT, 7, Compared(Incarnation(1), Lsn(50), AT), differed=differed)
    outcome = table_outcome(T, ProofReport("shop", Lsn(200), tables), proved, "the server is gone")
    assert (_colour(outcome), outcome.compared) == (colour, compared)
    assert outcome.metadata["verified_through_lsn"] == "0/32"
    assert ("compared_at_lsn" in outcome.metadata) == compared
    assert outcome.position == (Lsn(200) if compared else None)
    reason = outcome.reason or ""
    assert ("the server is gone" if status is None else "why") in reason
    assert ("at 0/64" in reason) == (differed is not None and not compared)


@pytest.mark.parametrize(
    ("repair", "shown"),
    [
        (TableRepair("keys", 3, 2), {"repaired": "by keys", "repaired_keys": 3, "repaired_rows_read": 2}),
        (
            TableRepair("whole", None, 7, "it has no key"),
            {"repaired": "whole", "repaired_rows_read": 7, "repaired_whole_because": "it has no key"},
        ),
        (None, {}),
    ],
)
def test_a_repair_shows_how_it_was_made(repair: TableRepair | None, shown: dict[str, object]) -> None:
    """By keys or whole, how many rows were read, and why not by keys."""
    tables = {T: TableProof("equal", 7, 7, repair=repair)}
    outcome = table_outcome(T, ProofReport("shop", Lsn(200), tables), None, "")
    assert {name: value for name, value in outcome.metadata.items() if name.startswith("repaired")} == shown


def test_what_was_found_equal_says_so_in_a_sentence() -> None:
    """A passed check has no reason to give, and says what was compared."""
    lake = LakeProof(3, Lsn(0x2A), {T: HistoryProof("equal", 1234)}, {"v": ViewProof("equal")})
    report = ProofReport("shop", Lsn(200), {T: TableProof("equal", 1234, 1234)}, lake)
    assert table_outcome(T, report, None, "").reason == "1,234 rows equal at 0/C8"
    assert history_outcome(T, report, None, "").reason == "its 1,234 rows are those that cycles wrote"
    assert view_outcome("v", report, None, "").reason == "it has the rows that its query returns"


def test_each_proof_shows_where_it_compared() -> None:
    """As text for people, and as a number for plots: from the run's result, and from the lake's record alone."""
    here, there = Lsn(0x2A), {"shop": Lsn(0x2A), "stock": Lsn(0x2B)}
    lake = LakeProof(3, here, {T: HistoryProof("equal", 9)}, {"v": ViewProof("equal", positions=there)})
    report = ProofReport("shop", here, {}, lake)
    recorded = LakeProved("equal", AT, 3, {"shop": here})
    for history in (history_outcome(T, report, None, ""), recorded_history(recorded)):
        assert md.lsns(compared_at_lsn=here).items() <= history.metadata.items()
    for view in (view_outcome("v", report, None, ""), recorded_view(LakeProved("equal", AT, positions=there))):
        assert md.lsns(shop_lsn=here, stock_lsn=Lsn(0x2B)).items() <= view.metadata.items()


def test_a_table_that_was_never_proved_says_only_why() -> None:
    """The table has no record."""
    outcome = table_outcome(T, ProofReport("shop", None, {}), None, "the server is gone")
    assert (_colour(outcome), outcome.reason) == ("yellow", "the server is gone")
    assert outcome.metadata == {"status": "blocked", "reason": "the server is gone"}


@pytest.mark.parametrize(
    ("now", "before", "colour"),
    [
        (HistoryProof("equal", 9), LakeProved("damaged", AT), "green"),
        (HistoryProof("damaged", 9, "why"), None, "red"),
        (HistoryProof("differs", 9, "why"), None, "red"),
        (None, LakeProved("damaged", AT), "red"),
        (None, LakeProved("equal", AT), "yellow"),
        (None, None, "yellow"),
    ],
)
def test_a_history_is_red_until_it_is_found_whole(
    now: HistoryProof | None, before: LakeProved | None, colour: str
) -> None:
    """The history stays red if this proof did not reach it."""
    proved = Proved("equal", AT, 7, HERE, history=before)
    lake = LakeProof(4, Lsn(0x2A), {} if now is None else {T: now}, {})
    outcome = history_outcome(T, ProofReport("shop", Lsn(200), {}, lake), proved, "why not")
    assert (_colour(outcome), outcome.compared) == (colour, now is not None)


@pytest.mark.parametrize(
    ("status", "before", "colour"),
    [
        ("equal", WRONG, "green"),
        ("differs", None, "red"),
        ("blocked", None, "yellow"),
        ("blocked", WRONG, "red"),
        (None, WRONG, "red"),
        (None, LakeProved("equal", AT), "yellow"),
    ],
)
def test_a_view_is_red_until_it_is_found_equal(
    status: ViewStatus | None, before: LakeProved | None, colour: str
) -> None:
    """A view whose definition has changed since, or that is being refreshed, can't be compared."""
    views = {} if status is None else {"v": ViewProof(status, "why")}
    outcome = view_outcome("v", ProofReport("shop", None, {}, LakeProof(4, Lsn(0x2A), {}, views)), before, "why not")
    assert (_colour(outcome), outcome.compared) == (colour, status in ("equal", "differs"))
