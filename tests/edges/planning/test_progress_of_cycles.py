"""The progress of a compaction over several cycles: rows of the copies count, and the whole is what is known of it."""

from __future__ import annotations

from pathlib import Path

from lakeproof.events import Event
from lakeproof.lake.cycle.work_left import WorkLeft, copied_rows, units_of
from lakeproof.lake.planning.entries import EntryLimit, pending_snapshots
from lakeproof.lake.records.documents import NO_ROWS, Cut, CycleKind, Intent
from lakeproof.names import CycleNumber
from lakeproof.progress import Progress, Work
from lakeproof.schema import Identity
from tests.edges.planning.plan_steps import ONE, cut_of, insert, plan
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable


def test_a_first_compaction_in_many_cycles_has_one_bar(tmp_path: Path) -> None:
    """Ten copies, three at a time, then what has landed: the fraction grows from nothing to one, without a step back.

    A first compaction shows the rows of the copies that it writes, where it once had "0 rows".
    """
    names = [f"t{number}" for number in range(10)]
    columns = {"id": "int4", "v": "text"}
    tables = [
        SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, oid)) for oid, n in enumerate(names, start=1)
    ]
    source = SimulatedSource(tmp_path, tables)
    insert(source, *names)
    source.flush()
    source.snapshot(names)
    for _ in range(3):
        insert(source, *names)
        source.flush()
    cut: Cut | None = None
    left, events, number = WorkLeft.begin(source.chain, source.chain.head.end_lsn, source.chain.end), list[Event](), 0
    while planned := plan(source, cut, cycle_rows=10, entries=EntryLimit(3)):
        number += 1
        intent = Intent(
            CycleNumber(number),
            planned.kind,
            ONE,
            planned.start,
            planned.end,
            (),
            0,
            NO_ROWS,
            planned.tables,
            {},
            1,
            "w",
            "",
        )
        assert intent.kind is CycleKind.APPLY
        copied = copied_rows(source.chain, intent)
        share = left.share_of(intent, copied, pending_snapshots(source.lake, ONE, cut) if copied else {})
        progress = Progress(events.append, Work("compact.progress", f"cycle {number}", len(intent.tables)), share)
        progress.begin()
        for table in intent.tables:
            progress.done(copied.get(table, 0), units_of(copied.get(table, 0)))
        cut = cut_of(source, planned, CycleNumber(number), cut)
    fractions = [event.fields["fraction"] for event in events]
    assert number > 4
    assert (fractions, fractions[-1]) == (sorted(fractions), 1.0)
    assert fractions[0] < 0.5
    assert any(event.fields["rows"] for event in events)
