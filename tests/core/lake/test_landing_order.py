"""The landing's order, against a list in which rows stand as they became true: random segments, cycles, corrections."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeproof.errors import InvariantError
from lakeproof.lake.planning.landing.order import SegmentPlace, SegmentRows, cycle_ordinals
from lakeproof.lake.records.documents import CutOrdinals
from lakeproof.landing.segments.row_order import ROOM, chunk_ordinal, ordinal_behind
from lakeproof.lsn import Lsn
from tests.support.workloads.examples import examples


@dataclass
class Segment:
    """A segment: its first ordinal, its end, and the position of each row."""

    first_ordinal: int
    start: int
    end: int
    positions: list[int]


@dataclass
class History:
    """A table's history in the order in which its rows became true: (ordinal, position); `since` is its place."""

    since: int
    rows: list[tuple[int, int]] = field(default_factory=list)


def make_chain(rng: random.Random, head: int, room: int = ROOM) -> list[Segment]:
    """Some segments with positions that never decrease; several rows may share one."""
    segments, first, position = list[Segment](), head + room, 100
    for _ in range(rng.randrange(1, 8)):
        positions = sorted(rng.randrange(position + 1, position + 12) for _ in range(rng.randrange(1, 9)))
        segments.append(Segment(first, position, position + 12, positions))
        first, position = first + len(positions) + room, position + 12
    return segments


def touched(chain: list[Segment], start: int, end: int, cut: int) -> list[SegmentRows]:
    """The segments with rows in (start, end], relative to a cut."""
    result = []
    for number, s in enumerate(chain):
        if s.start < end and s.end > start:
            place = SegmentPlace.OVER if s.end <= cut else SegmentPlace.BEGUN if s.start < cut else SegmentPlace.AHEAD
            result.append(SegmentRows(number, s.first_ordinal, len(s.positions), place))
    return result


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_ordinals_are_in_the_order_of_time_and_cuts_know_their_rows(seed: int) -> None:
    """Cycles end anywhere, also inside a segment and with an empty range; a second table enters later, and takes more."""
    rng = random.Random(seed)
    head = rng.choice([0, 1 << 40])
    # In a room of 2 there are soon more rows of cycles than fit.
    chain = make_chain(rng, head, rng.choice([2, ROOM]))
    last, position = chain[-1].end, 100
    cut = CutOrdinals(head, head)
    first, second = History(100), History(rng.randrange(100, last))
    second.rows = [(chunk_ordinal(rng.randrange(3)) + i, second.since) for i in range(rng.randrange(3))]
    second.rows.sort()
    tables, cuts = [first], list[tuple[CutOrdinals, int, list[int]]]()
    while position < last or rng.random() < 0.3:
        end = rng.choice([position, rng.randrange(position, last + 1), last])
        if second not in tables and end >= second.since and (end == last or rng.random() < 0.5):
            tables.append(second)
        start = min(position, *(t.since for t in tables))
        segments = touched(chain, start, end, position)
        inside = any(s.start < end < s.end for s in chain)
        own_rows = rng.choice([0, 0, rng.randrange(1, 5)])
        ordinals = cycle_ordinals(cut, segments, ends_inside=inside)
        for table in tables:
            for segment in segments:
                base = ordinals.segments[segment.number]
                places = enumerate(chain[segment.number].positions)
                table.rows += [(base + i, p) for i, p in places if table.since < p <= end]
            table.rows += [(ordinals.own + i, end) for i in range(own_rows)]
            table.since = end
        cut, position = ordinals.cut.with_own_rows(ordinals.own, own_rows), end
        cuts.append((cut, position, [len(first.rows), len(second.rows) if second in tables else 0]))
    for table in (first, second):
        assert all(a < b for (a, _), (b, _) in pairwise(table.rows))
    for each, end, counts in cuts:
        for table, count in zip((first, second), counts, strict=True):
            if count:
                assert [each.has(o, Lsn(p), Lsn(end)) for o, p in table.rows] == [
                    i < count for i in range(len(table.rows))
                ]


def test_without_rows_of_their_own_cycles_leave_the_landings_ordinals_alone() -> None:
    """However they cut the segments: every file can be linked."""
    chain = make_chain(random.Random(4), 0)
    cut, position = CutOrdinals(0, 0), 100
    for end in range(101, chain[-1].end + 1):
        segments = touched(chain, position, end, position)
        inside = any(s.start < end < s.end for s in chain)
        ordinals = cycle_ordinals(cut, segments, ends_inside=inside)
        assert ordinals.segments == {s.number: s.first_ordinal for s in segments}
        cut, position = ordinals.cut, end


def test_more_rows_than_the_room_push_segments_on() -> None:
    """Until the room behind later segments has taken them up; only a landing at the last ordinal is refused."""
    with pytest.raises(InvariantError, match="more segments than ordinals"):
        ordinal_behind((1 << 62) - ROOM, 5)
    second = ordinal_behind(ROOM, 1)
    segments = [SegmentRows(1, ROOM, 1), SegmentRows(2, second, 1)]
    ordinals = cycle_ordinals(CutOrdinals(0, 0).with_own_rows(0, ROOM + 1), segments, ends_inside=False)
    assert ordinals.segments == {1: ROOM + 1, 2: second}
    assert ordinals.cut == CutOrdinals(second + 1, second + 1)
