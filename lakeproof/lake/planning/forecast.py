"""The plan of the next compaction, made from manifests and documents alone: without Spark, and nothing is written.

What is done with it belongs to `lakeproof.commands.pending_work` (is there anything to do) and `status` (what will be held).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeproof.lake.planning.pending import pending_snapshots
from lakeproof.lake.planning.plan import Plan, plan_cycle
from lakeproof.lake.records.documents import Cut, CutTable, Held
from lakeproof.landing.chain import Chain
from lakeproof.names import CycleNumber, TableName
from lakeproof.snapshot.folder import Pending, snapshot_fingerprints

# A table may be reshaped, held and entered several times on the way; a landing far ahead is not followed to its end.
_CYCLES_MAX = 100


def next_plan(
    chain: Chain, cut: Cut | None, *, cycle_rows: int, pending: Mapping[TableName, Pending] | None = None
) -> Plan | None:
    """The plan of the cycle after `cut`, of the same incarnation as `chain`; None if there is nothing to do.

    `pending`: the snapshots that wait, where they are not those of the lake.
    """
    store, paths = chain.store, chain.paths
    waiting = pending_snapshots(store, paths, chain.incarnation, cut) if pending is None else pending
    return plan_cycle(
        chain,
        cut,
        waiting,
        CycleNumber(1 if cut is None else cut.number + 1),
        end=chain.end,
        cycle_rows=cycle_rows,
        fingerprints=snapshot_fingerprints(store, paths, chain.incarnation),
    )


def will_be_held(chain: Chain, cut: Cut) -> dict[TableName, Held]:
    """The tables that the next compaction will hold by what the landing knows already; rows may hold more.

    `cut` is one of the chain's incarnation. A table that is new in the lake by then is not followed.
    """
    at, found = cut, dict[TableName, Held]()
    pending = dict(pending_snapshots(chain.store, chain.paths, chain.incarnation, cut))
    for _ in range(_CYCLES_MAX):
        plan = next_plan(chain, at, cycle_rows=1 << 62, pending=pending)
        if plan is None:
            break
        for table in plan.held.keys() - at.held.keys():
            found[table] = plan.held[table]
        # What a snapshot brings back is held in between only.
        for table in at.held.keys() - plan.held.keys():
            found.pop(table, None)
        at = after_plan(at, plan, pending)
        pending = {t: p for t, p in pending.items() if t not in plan.tables or plan.tables[t].snapshot is None}
    return dict(sorted(found.items()))


def after_plan(cut: Cut, plan: Plan, pending: Mapping[TableName, Pending]) -> Cut:
    """The cut that the plan's cycle would end with, as far as the next plan needs it: Delta versions stay as they are."""
    tables = {t: _after(at, t, plan, pending) for t, at in cut.tables.items()}
    return replace(cut, position=plan.end, tables=tables, held=dict(plan.held), number=CycleNumber(cut.number + 1))


def _after(at: CutTable, table: TableName, plan: Plan, pending: Mapping[TableName, Pending]) -> CutTable:
    intent = plan.tables.get(table)
    if intent is not None and intent.reshape is not None:
        at = replace(at, version=intent.reshape.version)
    if intent is not None and intent.snapshot is not None and table in pending:
        entered = pending[table]
        at = replace(at, version=entered.table.version, snapshot_lsn=entered.consistent_point)
    return at if table in plan.held else replace(at, at_lsn=plan.end)
