"""How a lake follows its source into another incarnation: which landings are still to be read, and the cycle that crosses.

Beginning an incarnation belongs to `lakeproof.commands.recover`; what any cycle takes to `plan`; the rows to `table_cycle`.

    incarnation 1   ──────────── landed ─────┤ end            cycles until here: what landed did happen
                                             ┊ (gap)
    incarnation 2                            C ├──────────    the crossing: one cycle that ends at C, all by correction

Positions of two incarnations are never compared: after a restore, or on another system, the later one's may be lower. In the
crossing every table of the lake is held until its snapshot enters, so a table without one stands where it stood, with
its reason, and the others are at one position. History keeps a `gap` row of each table's way, then the correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeproof.lake.planning.plan import Plan, plan_cycle
from lakeproof.lake.records.documents import RESNAPSHOT, Cut, Held
from lakeproof.landing.chain import Chain
from lakeproof.landing.incarnation_record import has_head, incarnations, read_beginning
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import Pending, may_enter
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store


def to_be_followed(store: Store, paths: LakePaths, cut: Cut | None) -> list[Incarnation]:
    """The incarnations that a compaction goes through, oldest first: from the cut's on, the newest in any case.

    One that ended before it had a snapshot has nothing that could be applied; one whose chain could not be read when the
    next began ends, for the lake, where the cut stands.
    """
    known = [i for i in incarnations(store, paths) if has_head(store, paths, i)]
    records = [record for i in incarnations(store, paths) if (record := read_beginning(store, paths, i)) is not None]
    unread = {r.follows.incarnation for r in records if r.follows is not None and r.follows.end_lsn is None}
    return [
        incarnation
        for incarnation in known
        if cut is None or incarnation >= cut.incarnation
        if incarnation == known[-1] or (incarnation not in unread and may_enter(store, paths, incarnation))
    ]


def plan_crossing(chain: Chain, cut: Cut, pending: Mapping[TableName, Pending], number: CycleNumber) -> Plan | None:
    """The cycle from `cut`, of an incarnation before, into `chain`'s; None where no snapshot can enter yet.

    It ends at the latest of the snapshots' points, so that the tables of all of them are at one position.
    """
    end = max((p.consistent_point for p in pending.values()), default=None)
    if end is None or end > chain.end:
        return None
    return plan_cycle(
        chain, _at_the_head(chain, cut, pending), pending, number, end=end, cycle_rows=1 << 62, reshapes=False
    )


def _at_the_head(chain: Chain, cut: Cut, pending: Mapping[TableName, Pending]) -> Cut:
    reason = (
        f"incarnation {chain.incarnation} began after a gap, and no snapshot of this table has entered since"
        f" (its position is one of incarnation {cut.incarnation})"
    )
    remedy = f"if it is still published, {RESNAPSHOT}"
    held = {t: Held(at.at_lsn, reason, remedy).after(cut.held.get(t)) for t, at in cut.tables.items()}
    tables = {t: replace(at, version=_renumbered(at.version, pending.get(t))) for t, at in cut.tables.items()}
    return replace(cut, incarnation=chain.incarnation, position=chain.head.end_lsn, tables=tables, held=held)


def _renumbered(version: SchemaVersion, pending: Pending | None) -> SchemaVersion:
    """The shape under the OIDs that it has now: on another system, or made again, the same table has others."""
    if pending is None or _without_oids(pending.table.version) != _without_oids(version):
        return version
    return pending.table.version


def _without_oids(version: SchemaVersion) -> SchemaVersion:
    none = Oid(0)
    return replace(version, oid=none, columns=tuple(replace(c, type_oid=none) for c in version.columns))
