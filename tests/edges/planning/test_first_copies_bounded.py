"""The plans of a lake that many tables enter: a few in each cycle, so that a killed process loses the work of few."""

from __future__ import annotations

import random
from pathlib import Path

from lakeproof.lake.planning.entries import EntryLimit
from lakeproof.lake.planning.plan import CyclePlan
from lakeproof.lake.records.documents import Copy, Cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import Identity
from tests.edges.planning.plan_steps import cut_of, insert, plan
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import START, SimulatedSource, SimulatedTable

NAMES = [f"t{number}" for number in range(7)]


def source_of_seven(folder: Path) -> SimulatedSource:
    """Seven tables without a row."""
    columns = {"id": "int4", "v": "text"}
    tables = [
        SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, oid)) for oid, n in enumerate(NAMES, start=1)
    ]
    return SimulatedSource(folder, tables)


def cycles(source: SimulatedSource, entries: EntryLimit, cycle_rows: int = 1000) -> list[CyclePlan]:
    """The plans until nothing is left to do, one cut after the other."""
    cut: Cut | None = None
    plans: list[CyclePlan] = []
    while result := plan(source, cut, cycle_rows=cycle_rows, entries=entries):
        plans.append(result)
        cut = cut_of(source, result, CycleNumber(len(plans)), cut)
    assert cut is not None
    assert cut.position == source.chain.end
    return plans


def entering(result: CyclePlan) -> list[str]:
    """The names of the tables that enter by a copy."""
    return [t.name for t, intent in result.tables.items() if isinstance(intent.work, Copy)]


def test_a_first_compaction_takes_a_few_tables_in_each_cycle(tmp_path: Path) -> None:
    """Each copy enters once, in order; what has landed since comes when all are in, so none catches up with more."""
    source = source_of_seven(tmp_path)
    source.snapshot(NAMES)
    insert(source, *NAMES)
    source.flush()
    plans = cycles(source, EntryLimit(tables=3))
    assert [entering(p) for p in plans] == [NAMES[:3], NAMES[3:6], NAMES[6:]]
    assert [p.end for p in plans] == [Lsn(START), Lsn(START), source.chain.end]
    # The last copy enters with the range, as one that is not bounded does.
    assert {t.name for t in plans[-1].tables} == set(NAMES)


def test_copies_are_bounded_by_their_bytes_and_the_largest_enters_alone(tmp_path: Path) -> None:
    """A limit below any copy's size takes one at a time, and none is left for ever."""
    source = source_of_seven(tmp_path)
    insert(source, *NAMES)
    source.flush()
    source.snapshot(NAMES)
    assert [len(entering(p)) for p in cycles(source, EntryLimit(copy_bytes=1))][-7:] == [1] * 7


def test_copies_of_several_points_enter_in_the_order_of_the_stream(tmp_path: Path) -> None:
    """Random points and ranges: every table enters once, at or after its copy's point, and every range is taken once."""
    for seed in range(20):
        rng = random.Random(seed)
        source = source_of_seven(tmp_path / str(seed))
        left, points = list(NAMES), dict[TableName, Lsn]()
        rng.shuffle(left)
        while left:
            for _ in range(rng.randint(1, 3)):
                insert(source, *rng.sample(NAMES, 2))
                source.flush()
            now = [left.pop() for _ in range(min(len(left), rng.randint(1, 4)))]
            points |= dict.fromkeys((source.table(name).version.table for name in now), source.snapshot(now))
        insert(source, *NAMES)
        source.flush()
        plans = cycles(source, EntryLimit(rng.randint(1, 3)), rng.choice([1, 5, 1000]))
        places = [(t, p.end) for p in plans for t, intent in p.tables.items() if isinstance(intent.work, Copy)]
        assert len(places) == len(NAMES), seed
        assert all(points[table] <= place for table, place in places), seed
        assert [p.start for p in plans[1:]] == [p.end for p in plans[:-1]], seed
