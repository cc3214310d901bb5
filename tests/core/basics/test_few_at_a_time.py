"""Work on several tables at once: its results come in order, and the first error ends it."""

from __future__ import annotations

import threading

import pytest

from lakeproof.concurrently import few_at_a_time


def test_the_results_come_in_order_and_so_many_are_at_work() -> None:
    """The first one waits for the second, which is at work beside it."""
    second = threading.Event()

    def work(name: str) -> str:
        if name == "a":
            assert second.wait(30)
        second.set()
        return name.upper()

    assert list(few_at_a_time(["a", "b", "c"], work, 2)) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert list(few_at_a_time([], work, 2)) == []


def test_after_an_error_no_other_work_begins() -> None:
    """What was asked for after it is not done."""
    begun = []

    def work(name: str) -> str:
        begun.append(name)
        if name == "b":
            raise ValueError(name)
        if name > "b":
            # Longer than the caller needs to hear of the error.
            threading.Event().wait(0.3)
        return name

    with pytest.raises(ValueError, match="b"):
        list(few_at_a_time(["a", "b", *"cdefgh"], work, 1))
    assert begun[:2] == ["a", "b"]
    assert len(begun) < 8
