"""Takes a lake into its source's next incarnation: the landings still to be read, and the cycle that switches.

Beginning an incarnation does not belong here: `lakeproof recover` does that.

    incarnation 1   ──────────── landed ─────┤ end            cycles until here: what landed did happen
                                             ┊ (gap)
    incarnation 2                            C ├──────────    the switch: one cycle that ends at C, all by correction

Positions of two incarnations are never compared: after a restore, or on another system, the later one's may be lower. In the
switch every table of the lake is held until its snapshot enters. So a table without a snapshot stays at its old position,
with the reason, and all tables with one are at the same position. Each history gets a `gap` row, then the correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeproof.lake.planning.catalog_drift import has_ended, has_left
from lakeproof.lake.planning.plan import CyclePlan, RangeLimit, plan_cycle
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.landing.chain import Chain
from lakeproof.landing.incarnation_record import has_head, incarnations, read_incarnation_record
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import FinishedCopy, may_be_applied
from lakeproof.storage.source_lake import SourceLake


def to_be_followed(lake: SourceLake, cut: Cut | None) -> list[Incarnation]:
    """Return the incarnations that a compaction goes through, oldest first: from the cut's on, the newest in any case.

    An incarnation that ended before it had a snapshot has nothing that could be applied; if its chain could not be read
    when the next one began, it ends, for the lake, where the cut stands.
    """
    started = [i for i in incarnations(lake) if has_head(lake, i)]
    records = [record for i in incarnations(lake) if (record := read_incarnation_record(lake, i)) is not None]
    unread = {r.follows.incarnation for r in records if r.follows is not None and r.follows.end_lsn is None}
    return [
        incarnation
        for incarnation in started
        if cut is None or incarnation >= cut.incarnation
        if incarnation == started[-1] or (incarnation not in unread and may_be_applied(lake, incarnation))
    ]


def plan_switch(chain: Chain, cut: Cut, pending: Mapping[TableName, FinishedCopy]) -> CyclePlan | None:
    """Return the cycle from `cut`, of an earlier incarnation, into `chain`'s; None as long as no snapshot can enter.

    It ends at the latest of the snapshots' points, so that the tables of all of them are at one position.
    """
    end = max((p.consistent_point for p in pending.values()), default=None)
    if end is None or end > chain.end:
        return None
    return plan_cycle(chain, _at_the_head(chain, cut, pending), pending, RangeLimit(end, schema_changes=False))


def _at_the_head(chain: Chain, cut: Cut, pending: Mapping[TableName, FinishedCopy]) -> Cut:
    """Return the cut as if it stood at the chain's head, with each table held where it stands."""
    cause, way_out = HeldCause.NEXT_INCARNATION, WayOut.SNAPSHOT_IF_PUBLISHED
    detail = {"incarnation": str(chain.incarnation), "previous": str(cut.incarnation)}
    held = {t: Held(c.at_lsn, cause, way_out, detail).after(cut.held.get(t)) for t, c in cut.tables.items()}
    # No snapshot is to be expected of a table that nobody publishes.
    held |= {t: why for t, why in cut.held.items() if t not in pending and _is_out(why)}
    tables = {t: replace(c, version=_renumbered(c.version, pending.get(t))) for t, c in cut.tables.items()}
    return replace(cut, incarnation=chain.incarnation, position=chain.head.end_lsn, tables=tables, held=held)


def _is_out(held: Held) -> bool:
    """True if the table was paused, dropped, or taken out of the publication."""
    return held.cause is HeldCause.PAUSED or has_left(held) or has_ended(held)


def _renumbered(version: SchemaVersion, pending: FinishedCopy | None) -> SchemaVersion:
    """Return the schema under the OIDs that it has now: on another system, or made again, the same table has others."""
    if pending is None or _without_oids(pending.table.version) != _without_oids(version):
        return version
    return pending.table.version


def _without_oids(version: SchemaVersion) -> SchemaVersion:
    none = Oid(0)
    return replace(version, oid=none, columns=tuple(replace(c, type_oid=none) for c in version.columns))
