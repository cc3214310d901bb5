"""The record of the last proof, and the tables that a scheduled proof takes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.lake.history import HistoryProof
from lakeproof.proof.record import (
    Compared,
    LakeProved,
    Proved,
    due_tables,
    histories_due,
    read_record,
    record,
    views_due,
)
from lakeproof.proof.result import LakeProof, ProofReport, TableProof
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.views.audit import ViewProof

A, B, C, D = (TableName("s", name) for name in "abcd")


def _proved(rows: int | None, position: str = "2026-01-01T00:00:00.000000Z") -> Proved:
    return Proved("equal", position, rows, None, whole=Compared(Incarnation(1), Lsn(1), position))


@pytest.mark.parametrize(
    ("proved", "rows_max", "expected"),
    [
        ({}, 100, [A, B, C, D]),
        ({A: _proved(5), B: _proved(None), C: _proved(90, "2"), D: _proved(90, "1")}, 100, [A, B, D]),
        ({A: _proved(0), B: _proved(40, "3"), C: _proved(40, "2"), D: _proved(40, "1")}, 100, [A, C, D]),
        ({A: _proved(900, "2"), B: _proved(900, "2"), C: _proved(900, "2"), D: _proved(900, "2")}, 1, [A]),
    ],
    ids=["none was ever proved", "not compared, small, the oldest", "as many as fit", "one at least"],
)
def test_what_is_due(proved: dict[TableName, Proved], rows_max: int, expected: list[TableName]) -> None:
    """Small tables and unknown ones always; of the others the ones that were proved longest ago."""
    assert due_tables([A, B, C, D], proved, rows_max) == expected


def test_a_table_of_which_something_is_doubted_is_due() -> None:
    """It is compared whatever its size, beside the tables whose turn it is."""
    proved = {A: _proved(900, "4"), B: _proved(900, "3"), C: _proved(900, "2"), D: _proved(900, "1")}
    assert due_tables([A, B, C, D], proved, 1) == [D]
    assert due_tables([A, B, C, D], proved, 1, {B}) == [B, D]


def test_every_table_has_its_turn() -> None:
    """After as many runs as there are tables none is left out, whatever the sizes, and no run reads much too much."""
    rng = random.Random(7)
    tables = [TableName("s", f"t{i}") for i in range(30)]
    sizes = {t: rng.choice([3, 200, 900, 5_000]) for t in tables}
    proved = {t: _proved(sizes[t], "0") for t in tables}
    for run in range(1, len(tables) + 1):
        chosen = due_tables(tables, proved, 1_000)
        assert sum(sizes[t] for t in chosen if sizes[t] > 50) <= max(1_000, *(sizes[t] for t in chosen))
        proved |= {t: _proved(sizes[t], f"{run:04d}") for t in chosen}
        assert all(proved[t].time == f"{run:04d}" for t in tables if sizes[t] <= 50)
    assert all(proved[t].time > "0" for t in tables)


def test_a_record_keeps_where_a_table_was_equal_last(tmp_path: Path) -> None:
    """The position survives proofs that differ or compare nothing, and partial ones; a damaged record counts as none."""
    lake = SourceLake(LocalStore(tmp_path), LakePaths("shop"))
    one = Incarnation(1)
    record(lake, one, ProofReport("shop", Lsn(100), {A: TableProof("equal", 7, 7), B: TableProof("equal", 1, 1)}))
    record(lake, one, ProofReport("shop", Lsn(200), {A: TableProof("differs", 8, 7, 1)}))
    record(lake, one, ProofReport("shop", None, {A: TableProof("blocked"), C: TableProof("missing")}))
    actual = read_record(lake).tables
    assert [(t, actual[t].status, actual[t].rows) for t in (A, B, C)] == [
        (A, "blocked", None),
        (B, "equal", 1),
        (C, "missing", None),
    ]
    verified = actual[A].verified
    assert verified == Compared(one, Lsn(100), verified.time if verified else "")
    assert actual[C].verified is None
    lake.store.put(lake.paths.proof_record, b"{}")
    assert read_record(lake).tables == {}


def test_every_history_and_view_has_its_turn() -> None:
    """Those never proved come first, then the oldest; as many rows as fit, and at least one history."""
    proved: dict[TableName, Proved] = {}
    rows = {A: 50, B: 900, C: 40, D: 300}
    turns = []
    for run in range(5):
        chosen = histories_due(rows, proved, 100)
        turns.append(chosen)
        for table in chosen:
            proved[table] = Proved("equal", "", 1, None, None, LakeProved("equal", f"{run}"))
    assert turns == [[A], [B], [C], [D], [A]]
    assert histories_due(rows, {}, 10_000) == [A, B, C, D]
    assert histories_due({}, {}, 100) == []
    assert views_due(["v", "w"], {}) == ["v"]
    assert views_due(["v", "w"], {"v": LakeProved("equal", "1"), "w": LakeProved("blocked", "0")}) == ["w"]
    assert views_due([], {}) == []


def test_a_result_about_the_lake_stays_until_the_next_look(tmp_path: Path) -> None:
    """Proofs of current keep it; a damaged history or a view that differs makes the whole proof unequal."""
    source_lake, one = SourceLake(LocalStore(tmp_path), LakePaths("shop")), Incarnation(1)
    tables = {A: TableProof("equal", 7, 7), B: TableProof("equal", 1, 1)}
    lake = LakeProof(4, Lsn(100), {A: HistoryProof("damaged", 9, "why")}, {"v": ViewProof("differs", "how")})
    report = ProofReport("shop", Lsn(100), tables, lake)
    assert not report.equal
    assert report.damaged == {"history of s.a": "why", "view v": "how"}
    assert ProofReport("shop", Lsn(100), tables, LakeProof(4, Lsn(100), {}, {"v": ViewProof("blocked", "how")})).equal
    record(source_lake, one, report)
    record(source_lake, one, ProofReport("shop", Lsn(200), tables))
    actual = read_record(source_lake).tables
    history = actual[A].history
    assert history is not None
    assert (history.status, history.cut, history.reason) == ("damaged", 4, "why")
    assert actual[B].history is None
    assert read_record(source_lake).views["v"].status == "differs"


def test_a_difference_stays_recorded_until_the_next_comparison(tmp_path: Path) -> None:
    """A proof that compared nothing clears nobody: neither a table nor a view."""
    source_lake, one = SourceLake(LocalStore(tmp_path), LakePaths("shop")), Incarnation(1)

    def prove(position: int | None, table: TableProof, view: ViewProof) -> tuple[Lsn | None, bool]:
        lake = LakeProof(4, Lsn(100), {}, {"v": view})
        record(source_lake, one, ProofReport("shop", None if position is None else Lsn(position), {A: table}, lake))
        differed = read_record(source_lake).tables[A].differed
        return None if differed is None else differed.position, read_record(source_lake).views[
            "v"
        ].differed_at is not None

    equal, differs, blocked = TableProof("equal", 7, 7), TableProof("differs", 7, 6, 1), TableProof("blocked")
    assert prove(100, equal, ViewProof("blocked")) == (None, False)
    assert prove(200, differs, ViewProof("differs", "how")) == (Lsn(200), True)
    assert prove(None, blocked, ViewProof("blocked")) == (Lsn(200), True)
    assert prove(300, TableProof("held"), ViewProof("blocked")) == (Lsn(200), True)
    left = TableProof("not applicable", reason="it is no longer configured")
    assert prove(350, left, ViewProof("blocked")) == (Lsn(200), True)
    whole = read_record(source_lake).tables[A].whole
    assert whole is not None
    assert whole.position == Lsn(200)
    assert prove(400, equal, ViewProof("equal")) == (None, False)


def test_a_history_is_recorded_also_of_a_table_that_was_never_compared(tmp_path: Path) -> None:
    """Histories may be proved alone; such a table is due for a proof all the same."""
    source_lake = SourceLake(LocalStore(tmp_path), LakePaths("shop"))
    lake = LakeProof(4, Lsn(100), {A: HistoryProof("equal", 9)}, {})
    record(source_lake, Incarnation(1), ProofReport("shop", None, {}, lake))
    actual = read_record(source_lake).tables
    assert actual[A].rows is None
    assert actual[A].history is not None
    assert due_tables([A], actual, 100) == [A]
