"""What was proved last, and which tables a scheduled proof takes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.local import LocalStore
from wal2delta.lsn import Lsn
from wal2delta.names import Incarnation, TableName
from wal2delta.proof.record import Proved, Verified, due, read_proved, record
from wal2delta.proof.result import ProofReport, TableProof

A, B, C, D = (TableName("s", name) for name in "abcd")


def _proved(rows: int | None, at: str = "2026-01-01T00:00:00.000000Z") -> Proved:
    return Proved("equal", at, rows, None)


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
    assert due([A, B, C, D], proved, rows_max) == expected


def test_every_table_has_its_turn() -> None:
    """Whatever the sizes: after as many runs as there are tables none is left out, and no run reads much too much."""
    rng = random.Random(7)
    tables = [TableName("s", f"t{i}") for i in range(30)]
    sizes = {t: rng.choice([3, 200, 900, 5_000]) for t in tables}
    proved = {t: _proved(sizes[t], "0") for t in tables}
    for run in range(1, len(tables) + 1):
        chosen = due(tables, proved, 1_000)
        assert sum(sizes[t] for t in chosen if sizes[t] > 50) <= max(1_000, *(sizes[t] for t in chosen))
        proved |= {t: _proved(sizes[t], f"{run:04d}") for t in chosen}
        assert all(proved[t].at == f"{run:04d}" for t in tables if sizes[t] <= 50)
    assert all(proved[t].at > "0" for t in tables)


def test_a_record_keeps_where_a_table_was_equal_last(tmp_path: Path) -> None:
    """Through proofs that differ or compare nothing, and beside tables that were not proved; a damaged one is none."""
    store, paths = LocalStore(tmp_path), LakePaths(str(tmp_path), "shop")
    one = Incarnation(1)
    record(
        store, paths, one, ProofReport("shop", Lsn(100), {A: TableProof("equal", 7, 7), B: TableProof("equal", 1, 1)})
    )
    record(store, paths, one, ProofReport("shop", Lsn(200), {A: TableProof("differs", 8, 7, 1)}))
    record(store, paths, one, ProofReport("shop", None, {A: TableProof("blocked"), C: TableProof("missing")}))
    found = read_proved(store, paths)
    assert [(t, found[t].status, found[t].rows) for t in (A, B, C)] == [
        (A, "blocked", None),
        (B, "equal", 1),
        (C, "missing", None),
    ]
    verified = found[A].verified
    assert verified == Verified(one, Lsn(100), verified.at if verified else "")
    assert found[C].verified is None
    store.put(paths.proved, b"{}")
    assert read_proved(store, paths) == {}
