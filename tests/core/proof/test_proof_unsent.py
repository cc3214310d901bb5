"""An operation that a publication does not send excuses just the difference it can have made, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lakeproof.postgres.catalog.tables import ACTIONS
from lakeproof.proof.compare import ProofRow
from lakeproof.proof.source.unsent import Judgement, differences, judge

_SURPLUS, _LACKING, _OTHER = "surplus", "lacking", "other"
_SIDES = {
    _SURPLUS: ([("1", 1)], [("1", 1), ("2", 2)]),
    _LACKING: ([("1", 1), ("2", 2)], [("1", 1)]),
    _OTHER: ([("1", 1), ("2", 2)], [("1", 1), ("2", 3)]),
}


def _rows(rows: Iterable[tuple[str | None, int]], buckets: int = 2) -> list[tuple[int, ProofRow]]:
    """Return rows in the order of their buckets, as both sides are read."""
    keyed = [(hash(key) % buckets if key else 0, ProofRow(number, (key,) if key else ())) for key, number in rows]
    return sorted(keyed, key=lambda row: row[0])


def _judged(
    source: Iterable[tuple[str | None, int]],
    lake: Iterable[tuple[str | None, int]],
    without: str,
    *,
    new_file: bool = False,
) -> Judgement:
    sent = [a for a in ACTIONS if a not in without.split()]
    return judge(differences(("id",), _rows(source), _rows(lake)), sent, new_file=new_file)


@pytest.mark.parametrize(
    ("without", "excused"),
    [
        ("truncate", set()),
        ("delete", {_SURPLUS}),
        ("update", {_OTHER}),
        ("insert", {_LACKING}),
        ("insert delete", {_SURPLUS, _LACKING, _OTHER}),
        ("update delete truncate", {_SURPLUS, _OTHER}),
    ],
)
def test_each_action_excuses_what_it_makes(without: str, excused: set[str]) -> None:
    """A row too many, one lacking, one with other values: each alone."""
    actual = {what for what, sides in _SIDES.items() if _judged(*sides, without).excused}
    assert actual == excused


def test_a_truncate_excuses_rows_too_many_if_it_may_have_happened() -> None:
    """The table's file shows if it happened; it never explains wrong values or missing rows."""
    assert {w for w, sides in _SIDES.items() if _judged(*sides, "truncate", new_file=True).excused} == {_SURPLUS}
    assert _judged(*_SIDES[_OTHER], "truncate insert", new_file=True).excused


def test_an_update_that_moves_a_key_excuses_pairs_only() -> None:
    """The old key is too many, the new one lacks; one more of either is no update's."""
    moved = [("2", 2)], [("1", 1)]
    assert _judged(*moved, "update").excused
    assert _judged(*moved, "update delete").excused
    one_more = _judged([*moved[0], ("3", 3)], moved[1], "update")
    assert not one_more.excused
    assert {k.key["id"] for k in one_more.keys} == {"2", "3"}
    assert one_more.message.endswith("and 1 row that the lake lacks, and not for 1 row that the lake lacks")
    assert not _judged(moved[0], [*moved[1], ("0", 3)], "update").excused


def test_a_bag_is_judged_by_its_rows() -> None:
    """A changed value appears as a row removed and a row added."""
    assert _judged([(None, 1)], [(None, 2)], "update").excused
    assert _judged([(None, 1)], [(None, 2)], "update delete").excused
    assert not _judged([(None, 1)], [(None, 2)], "delete").excused
    assert _judged([(None, 1)], [(None, 1), (None, 1)], "delete").excused


def test_a_row_beside_the_right_one_is_too_many() -> None:
    """A key that was deleted and used again is there twice, if deletes are not sent."""
    assert _judged([("1", 2)], [("1", 1), ("1", 2)], "delete").excused
    judged = _judged([("1", 2)], [("1", 1), ("1", 3)], "delete")
    assert not judged.excused
    assert (judged.keys[0].source_rows, judged.keys[0].lake_rows) == (1, 2)
