"""The plan of the next compaction, made from manifests and documents alone: without Spark, and nothing is written.

Deciding by it does not belong here: `lakeproof.compaction.pending` asks whether there is anything to do, `status` which
tables will be held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.planning.plan import CyclePlan, RangeLimit, plan_cycle
from lakeproof.lake.records.documents import Copy, Cut, CutTable, SchemaChange, next_number
from lakeproof.lake.records.held import Held
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import FinishedCopy

# A table's schema may change, and the table be held and entered, several times; a landing far ahead is not followed on.
_CYCLES_MAX = 100


def next_plan(
    chain: Chain,
    cut: Cut | None,
    *,
    cycle_rows: int,
    pending: Mapping[TableName, FinishedCopy] | None = None,
    end: Lsn | None = None,
) -> CyclePlan | None:
    """Return the plan of the cycle after `cut`, of the same incarnation as `chain`; None if there is nothing to do.

    `pending`: the snapshots that wait, if they are not those of the lake. `end` is where it ends, if before the chain's end.
    """
    waiting = pending_snapshots(chain.lake, chain.incarnation, cut) if pending is None else pending
    return plan_cycle(chain, cut, waiting, RangeLimit(chain.end if end is None else end, cycle_rows))


def will_be_held(chain: Chain, cut: Cut) -> dict[TableName, Held]:
    """Return the tables that the next compaction will hold by what the landing says already; rows may hold more.

    `cut` is one of the chain's incarnation. A table that is new in the lake by then is not followed.
    """
    held: dict[TableName, Held] = {}
    pending = dict(pending_snapshots(chain.lake, chain.incarnation, cut))
    for _ in range(_CYCLES_MAX):
        plan = next_plan(chain, cut, cycle_rows=1 << 62, pending=pending)
        if plan is None:
            break
        for table in plan.held.keys() - cut.held.keys():
            held[table] = plan.held[table]
        # A table that a snapshot brings back is held in between only.
        for table in cut.held.keys() - plan.held.keys():
            held.pop(table, None)
        cut = after_plan(cut, plan, pending)
        pending = {
            t: p for t, p in pending.items() if t not in plan.tables or not isinstance(plan.tables[t].work, Copy)
        }
    return dict(sorted(held.items()))


def after_plan(cut: Cut, plan: CyclePlan, pending: Mapping[TableName, FinishedCopy]) -> Cut:
    """Return the cut that the plan's cycle would end with, as far as the next plan needs it: no Delta version moves."""
    tables = {t: _after(cut_table, t, plan, pending) for t, cut_table in cut.tables.items()}
    held, number = dict(plan.held), next_number(cut)
    return replace(cut, position=plan.end, tables=tables, held=held, number=number, ordinals=plan.ordinals.cut)


def _after(before: CutTable, table: TableName, plan: CyclePlan, pending: Mapping[TableName, FinishedCopy]) -> CutTable:
    after, work = before, plan.tables[table].work if table in plan.tables else None
    if isinstance(work, SchemaChange):
        after = replace(after, version=work.version)
    if isinstance(work, Copy) and table in pending:
        snapshot = pending[table]
        after = replace(after, version=snapshot.table.version, snapshot_lsn=snapshot.consistent_point)
    return after if table in plan.held else replace(after, at_lsn=plan.end)
