"""The steps of a test of planning: a row in some tables, the next plan, the cut that ends it.

No Spark is needed to plan; what a plan must be belongs to the tests.
"""

from __future__ import annotations

import random
from dataclasses import replace

from lakeproof.lake.planning.catalog_drift import Fingerprints
from lakeproof.lake.planning.entries import EntryLimit, pending_snapshots
from lakeproof.lake.planning.plan import CyclePlan, RangeLimit, plan_cycle
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from tests.support.lake.simulated_source import SimulatedSource

A, B = TableName("app", "a"), TableName("app", "b")
FIRST = CycleNumber(1)
ONE = Incarnation(1)
TIME = "2026-11-01T00:00:00.000000Z"


def insert(source: SimulatedSource, *names: str) -> Lsn:
    """Insert a row into each table in one transaction."""
    for name in names:
        source.insert(source.table(name), (source.lsn, "x"))
    return source.commit(random.Random(source.lsn))


def plan(
    source: SimulatedSource,
    cut: Cut | None,
    end: Lsn | None = None,
    cycle_rows: int = 1000,
    fingerprints: Fingerprints = lambda _table, _point: None,
    *,
    entries: EntryLimit | None = None,
) -> CyclePlan | None:
    """The next cycle's plan."""
    pending = pending_snapshots(source.lake, Incarnation(1), cut)
    limit = RangeLimit(source.chain.end if end is None else end, cycle_rows, entries or EntryLimit())
    return plan_cycle(source.chain, cut, pending, limit, fingerprints=fingerprints)


def planned(source: SimulatedSource, cut: Cut | None, end: Lsn | None = None, cycle_rows: int = 1000) -> CyclePlan:
    """Return the plan, which must exist."""
    result = plan(source, cut, end, cycle_rows)
    assert result is not None
    return result


def cut_of(source: SimulatedSource, result: CyclePlan, number: CycleNumber = FIRST, before: Cut | None = None) -> Cut:
    """The cut that ends a plan, as if its tables had been written; those of `before` without changes are carried along."""
    carried = {} if before is None else before.tables
    tables = {
        t: position if t in result.held else replace(position, at_lsn=result.end) for t, position in carried.items()
    }
    tables |= {
        name: CutTable(result.end, i.from_lsn, 0, 0, source.tables[name].version, ONE, ONE)
        for name, i in result.tables.items()
    }
    held, ordinals = dict(result.held), result.ordinals.cut
    return Cut(number, CycleKind.APPLY, ONE, result.end, None, tables, 1, "0" * 64, TIME, held, ordinals)
