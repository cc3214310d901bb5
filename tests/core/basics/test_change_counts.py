"""The one set of change counts: its sum, and what is derived from it."""

from __future__ import annotations

from lakeproof.change_counts import COUNT_NAMES, ChangeCounts
from lakeproof.drain.counts import LandedCounts


def test_counts_add_up_field_by_field() -> None:
    """A sum has each field's sum, and befores are rows but no changes."""
    total = ChangeCounts(1, 2, 3, 4, 5, 6) + ChangeCounts(10, 20, 30, 40, 50, 60)
    assert total == ChangeCounts(11, 22, 33, 44, 55, 66)
    assert (total.changes, total.rows) == (110, 165)
    assert COUNT_NAMES == ("inserts", "updates", "deletes", "truncates", "befores", "unchanged")


def test_a_sum_of_landed_counts_keeps_the_bytes() -> None:
    """The drain's counts are the same with a size, and stay so when they are added."""
    assert LandedCounts(1, bytes=5) + LandedCounts(1, befores=2, bytes=7) == LandedCounts(2, befores=2, bytes=12)


def test_only_inserts() -> None:
    """A range of inserts alone touches no earlier row; an old image does."""
    assert ChangeCounts(inserts=2).inserts_only
    assert not ChangeCounts(inserts=2, befores=1).inserts_only
