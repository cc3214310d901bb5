"""The age of rows, by marks that maintenance leaves and by the cuts that are kept. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.lake.records.ages import MARKS_MAX, Ages, Mark, in_lake_at, mark_age, read_ages
from lakeproof.lake.records.documents import Cut, CutOrdinals
from lakeproof.lake.records.store import write_cut
from lakeproof.names import CycleNumber
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import text_of_time
from tests.edges.planning.plan_steps import cut_of, planned
from tests.support.lake.simulated_source import two_tables

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def _day(number: float) -> datetime:
    return BEGIN + timedelta(days=number)


def _cut(first: Cut, number: int, whole: int, commit_time: str | None = None) -> Cut:
    """A cut of a day, with its ordinals and a commit time that nobody should ask for."""
    ordinals = CutOrdinals(whole, whole + 5)
    return replace(
        first,
        number=CycleNumber(number),
        ordinals=ordinals,
        created_at=text_of_time(_day(number)),
        commit_time=commit_time,
    )


@pytest.fixture
def lake_and_cut(tmp_path: Path) -> tuple[SourceLake, Cut]:
    """A lake without a cut, and one to make others of."""
    source = two_tables(tmp_path)
    return source.lake, cut_of(source, planned(source, None))


@pytest.mark.parametrize("commit_time", [None, "0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.000000Z"])
def test_an_age_is_that_of_the_cut(lake_and_cut: tuple[SourceLake, Cut], commit_time: str | None) -> None:
    """The newest cut of that time says up to which ordinal all was there, whatever the source's clock shows."""
    lake, first = lake_and_cut
    for number in (1, 2, 3):
        write_cut(lake, _cut(first, number, 100 * number, commit_time))
    assert [in_lake_at(lake, _day(at_day)) for at_day in (0.5, 1, 2.5, 99)] == [0, 100, 200, 300]


def test_marks_go_on_for_cuts_that_are_gone(lake_and_cut: tuple[SourceLake, Cut]) -> None:
    """One for each run of maintenance that found new rows; between two of them the earlier one counts."""
    lake, first = lake_and_cut
    for number, whole in ((1, 100), (2, 200), (3, 200), (4, 400)):
        mark_age(lake, _cut(first, number, whole))
    assert [mark.ordinal for mark in read_ages(lake).marks] == [100, 200, 400]
    assert [in_lake_at(lake, _day(at_day)) for at_day in (0.5, 1.5, 3.5, 4)] == [0, 100, 200, 400]
    write_cut(lake, _cut(first, 4, 400))
    assert [in_lake_at(lake, _day(at_day)) for at_day in (3.5, 4)] == [200, 400]


def test_a_clock_of_ours_that_was_ahead_keeps_nothing_for_ever(lake_and_cut: tuple[SourceLake, Cut]) -> None:
    """The next mark of a clock that is right takes its place."""
    lake, first = lake_and_cut
    for number, whole in ((1, 100), (20_000, 200), (3, 300)):
        mark_age(lake, _cut(first, number, whole))
    assert [in_lake_at(lake, _day(at_day)) for at_day in (2, 3)] == [100, 300]


def test_there_are_not_more_marks_than_a_thousand() -> None:
    """Every second one goes when there are too many: rows are then kept for longer. The newest stays."""
    ages = Ages()
    for number in range(3 * MARKS_MAX):
        ages = ages.with_mark(Mark(text_of_time(_day(number)), number + 1))
        assert len(ages.marks) <= MARKS_MAX
        assert ages.marks[-1].ordinal == number + 1
    times = [mark.time for mark in ages.marks]
    assert times == sorted(set(times))
    assert ages.marks[0].ordinal == 1


def test_marks_that_can_not_be_read_count_as_none(lake_and_cut: tuple[SourceLake, Cut]) -> None:
    """Nothing is old by them, and the next run begins anew."""
    lake, first = lake_and_cut
    lake.store.put(lake.paths.ages, b"{}")
    assert in_lake_at(lake, _day(99)) == 0
    mark_age(lake, _cut(first, 5, 500))
    assert in_lake_at(lake, _day(99)) == 500
