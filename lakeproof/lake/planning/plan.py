"""Decides what the next cycle does: its range and segments, the tables it writes or holds, the snapshots that enter.

Nothing is written and no row is read here: a plan is made from manifests, the previous cut and the pending snapshots.

A cycle ends with a segment once it has enough rows, and before the first transaction that brings another schema of a table
in the lake. Then a separate cycle gives the table that schema, or the table is held right there and all other tables go on
(`schema_changes`). The same happens if the chain's records of the catalog make a table suspect (`catalog_drift`). A snapshot
whose table has another schema than in the lake enters after such a cycle, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakeproof.lake.planning.catalog_drift import (
    Fingerprints,
    SuspectedChange,
    first_not_covered,
    suspected_changes,
    usable_until,
)
from lakeproof.lake.planning.created_tables import CreatedTable, created_tables
from lakeproof.lake.planning.entries import EntryLimit, entering_until
from lakeproof.lake.planning.landing_order import CycleOrdinals, cycle_ordinals
from lakeproof.lake.planning.ordinals import range_ordinals
from lakeproof.lake.planning.recorded_schemas import decide_recorded_changes, newer_recorded
from lakeproof.lake.planning.schema_change import describe_change, taken_in
from lakeproof.lake.planning.schema_changes import decide_changes, last_entries
from lakeproof.lake.planning.set_aside import with_paused
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind, TableIntent
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.work import Changes, Copy, Created, Keys, SchemaChange
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import FinishedCopy
from lakeproof.snapshot.keyed_copy import PlacedCopy


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """A cycle that may be run: the fields of its intent that do not depend on who runs it."""

    start: Lsn
    end: Lsn
    ordinals: CycleOrdinals
    tables: Mapping[TableName, TableIntent]
    held: Mapping[TableName, Held]
    kind: CycleKind = CycleKind.APPLY


@dataclass(frozen=True, slots=True)
class RangeLimit:
    """The limit of a cycle's range: `end`, or the end of the segment that brings the range to `cycle_rows`.

    `entries` limits the tables that enter.
    """

    end: Lsn
    cycle_rows: int = 1 << 62
    entries: EntryLimit = field(default_factory=EntryLimit)


@dataclass(frozen=True, slots=True)
class _ExpectedSchemas:
    """The schema that each table has from a position on: the range must end before the schema changes."""

    start: Lsn
    schemas: Sequence[tuple[TableName, Lsn, SchemaVersion]]

    def end_before(self, entries: Iterable[SchemaEntry]) -> Lsn | None:
        """Return the position right before the first of `entries` that brings another schema; None without one."""
        ends = [
            max(self.start, Lsn(int(entry.from_lsn) - 1))
            for entry in entries
            for table, since, version in self.schemas
            if table == entry.version.table and entry.from_lsn > since and taken_in(entry.version).id != version.id
        ]
        return min(ends, default=None)


@dataclass(slots=True)
class _SuspectedTables:
    """The changes that the catalog's records suspect; `bounds` are the positions at which the range must end for them."""

    chain: Chain
    start: Lsn
    changes: list[SuspectedChange]
    bounds: list[Lsn] = field(default_factory=list)

    def hold(
        self, tables: Mapping[TableName, CutTable], held: Mapping[TableName, Held], fingerprints: Fingerprints
    ) -> dict[TableName, Held]:
        """Return `held` with the lake's tables that are suspect where they stand; those that will be, bound the range."""
        result = dict(held)
        newest = {change.table: change for change in self.changes}
        about = newest.keys()
        for table in sorted(about & held.keys()):
            # If no snapshot of the table can be made, the way out changes, whatever the cause. A pause ends where the
            # table is published again, even if nobody has asked for it.
            if newest[table].is_gone or (held[table].cause is HeldCause.PAUSED and newest[table].comes_in):
                result[table] = newest[table].held(held[table].at_lsn)
        for table in sorted(about & tables.keys() - held.keys()):
            cut_table = tables[table]
            changes = [change for change in self.changes if not _loses_nothing(self.chain, change, cut_table)]
            usable = usable_until(self.chain, changes, cut_table, fingerprints(table, cut_table.snapshot_lsn))
            if usable is None:
                continue
            until, change = usable
            if until <= cut_table.at_lsn:
                result[table] = change.held(cut_table.at_lsn)
            else:
                self.bounds.append(until)
        return result

    def admit(
        self, pending: Mapping[TableName, FinishedCopy], tables: Mapping[TableName, CutTable]
    ) -> tuple[dict[TableName, FinishedCopy], dict[TableName, Held]]:
        """Return the snapshots that can enter, and why the others can't: their table had changed by then, or has since."""
        admitted: dict[TableName, FinishedCopy] = {}
        refused: dict[TableName, Held] = {}
        for table, snapshot in pending.items():
            point = snapshot.consistent_point
            change = first_not_covered(self.changes, snapshot.table.version, point, snapshot.table.fingerprint)
            if change is None:
                admitted[table] = snapshot
            elif max(point, self.start) <= change.holds_from:
                admitted[table] = snapshot
                self.bounds.append(change.holds_from)
            else:
                cut_table = tables.get(table)
                refused[table] = change.held(point if cut_table is None else cut_table.at_lsn)
        return admitted, refused


def _loses_nothing(chain: Chain, suspected: SuspectedChange, cut_table: CutTable) -> bool:
    """True if the table never had a row until the position at which it was seen to be empty, as far as the stream is."""
    about = (suspected.change.oid, suspected.table) == (cut_table.version.oid, cut_table.version.table)
    if not about or suspected.is_gone or suspected.change.empty is None or cut_table.history_sum.rows:
        return False
    until = min(suspected.upper_lsn, chain.end)
    if until <= cut_table.at_lsn:
        return True
    return all(file.oid != suspected.change.oid for m in chain.between(cut_table.at_lsn, until) for file in m.files)


def plan_cycle(
    chain: Chain,
    cut: Cut | None,
    pending: Mapping[TableName, FinishedCopy],
    limit: RangeLimit,
    *,
    fingerprints: Fingerprints = lambda _table, _point: None,
    schema_changes: bool = True,
    keyed: PlacedCopy | None = None,
) -> CyclePlan | None:
    """Return the cycle after `cut`; None if there is nothing to do.

    `fingerprints` gives those of the snapshots that have entered. Without `schema_changes` a snapshot of another schema
    waits, and no table that was created in the stream enters. `keyed` enters if the cycle ends at its point, for tables that
    the cycle neither holds nor gives a snapshot or another schema.
    """
    start = chain.head.end_lsn if cut is None else cut.position
    last = min(limit.end, chain.end)
    if last < start:
        return None
    tables = {} if cut is None else cut.tables
    held = {} if cut is None else dict(cut.held)
    pending, refused = _not_outdated(chain, pending, cut, start)
    held |= refused
    oldest = min([start, *(p.consistent_point for p in pending.values())])
    suspected = _SuspectedTables(chain, start, suspected_changes(chain, oldest))
    held = suspected.hold(tables, held, fingerprints)
    pending, refused = suspected.admit(pending, tables)
    held = with_paused(held | refused, chain.lake)
    created_ahead = created_tables(chain, cut, start) if schema_changes else {}
    created = {t: b for t, b in created_ahead.items() if t not in pending and b.enters_at <= last}
    pending |= {t: b.pending for t, b in created.items()}
    schemas = _schemas_ahead(chain, _LakeState(tables, held), pending, (start, last), schema_changes=schema_changes)
    held |= schemas.held
    if cut is not None and schemas.changes:
        return _schema_change_plan(cut, _with_lost_histories(held, cut), schemas)
    pending = {t: p for t, p in pending.items() if t not in schemas.later}
    in_force = [(t, c.at_lsn, c.version) for t, c in tables.items() if t not in held]
    # A table created in the stream counts from where it enters: before that, another table may have had its name.
    places = {t: created[t].enters_at if t in created else p.consistent_point for t, p in pending.items()}
    in_force += [(t, place, pending[t].table.version) for t, place in places.items()]
    bounds = [last, *suspected.bounds, *schemas.bounds, *schemas.later.values()]
    stop = _end_of_range(chain, _ExpectedSchemas(start, in_force), min(bounds), limit.cycle_rows)
    stop, entering = entering_until(pending, places, created, limit.entries, (start, stop))
    held_before = set() if cut is None else set(cut.held)
    by_keys = {} if cut is None else _by_keys(keyed, cut, held.keys() | entering.keys(), stop)
    if stop == start and not entering and not by_keys and held.keys() <= held_before:
        return None
    active = {t: _entry(p, created.get(t), was_held=t in held, is_new=t not in tables) for t, p in entering.items()}
    held = {t: h for t, h in _with_lost_histories(held, cut).items() if t not in entering}
    changed = {file.table for manifest in chain.between(start, stop) for file in manifest.files}
    still = held.keys() | entering.keys()
    active |= {
        t: TableIntent(tables[t].at_lsn, tables[t].version.id, Changes()) for t in changed & tables.keys() - still
    }
    active |= by_keys
    first = min([start, *(p.consistent_point for p in entering.values())])
    return CyclePlan(start, stop, range_ordinals(chain, cut, first, stop), active, held)


def without_range(cut: Cut) -> CycleOrdinals:
    """Return the ordinals of a cycle of an empty range, which takes no row of the landing."""
    return cycle_ordinals(cut.ordinals, (), ends_inside=False)


def _by_keys(
    keyed: PlacedCopy | None, cut: Cut, others: Collection[TableName], stop: Lsn
) -> dict[TableName, TableIntent]:
    """Return the tables that get the rows of single keys; `others` are held, or get all their rows.

    At the cycle's end the rows are the table's own: changes after it belong to the next cycle, and none is applied twice.
    """
    if keyed is None or (keyed.copy.incarnation, keyed.copy.consistent_point) != (cut.incarnation, stop):
        return {}
    return {
        table: TableIntent(cut.tables[table].at_lsn, copied.rows.version.id, Keys(keyed.key))
        for table, copied in keyed.copy.tables.items()
        if table in cut.tables
        and table not in others
        and cut.tables[table].at_lsn == cut.position
        and cut.tables[table].version.id == copied.rows.version.id
    }


def _entry(snapshot: FinishedCopy, created: CreatedTable | None, *, was_held: bool, is_new: bool) -> TableIntent:
    version = snapshot.table.version
    if created is not None:
        lost = not created.whole and (was_held or is_new)
        return TableIntent(snapshot.consistent_point, version.id, Created(version, lost))
    return TableIntent(snapshot.consistent_point, version.id, Copy(snapshot.key, was_held))


@dataclass(frozen=True, slots=True)
class _LakeState:
    """The tables in the lake, and those that are held."""

    tables: Mapping[TableName, CutTable]
    held: Mapping[TableName, Held]


@dataclass(slots=True)
class _SchemasAhead:
    """The tables that get another schema now, those held, and the snapshots that enter later, with where the range ends.

    `bounds` are where the range ends for a schema that the catalog's records have later.
    """

    changes: dict[TableName, SchemaChange] = field(default_factory=dict)
    held: dict[TableName, Held] = field(default_factory=dict)
    later: dict[TableName, Lsn] = field(default_factory=dict)
    bounds: list[Lsn] = field(default_factory=list)


def _schemas_ahead(
    chain: Chain,
    lake: _LakeState,
    pending: Mapping[TableName, FinishedCopy],
    span: tuple[Lsn, Lsn],
    *,
    schema_changes: bool,
) -> _SchemasAhead:
    """Return what the stream brings right after the span's start, and what snapshots of other schemas call for."""
    start, last = span
    ahead = _SchemasAhead()
    following = {t: c for t, c in lake.tables.items() if t not in lake.held}
    if schema_changes:
        recorded, ahead.bounds = decide_recorded_changes(chain, start, following, pending)
        ahead.changes, ahead.held = dict(recorded.changes), dict(recorded.held)
        following = {t: c for t, c in following.items() if t not in ahead.changes and t not in ahead.held}
    if start < last:
        decision = decide_changes(chain, start, following)
        ahead.changes |= decision.changes
        ahead.held |= decision.held
        ahead.later = dict.fromkeys(decision.waits, start)
    for table, snapshot in pending.items():
        cut_table, point, version = lake.tables.get(table), snapshot.consistent_point, snapshot.table.version
        if cut_table is None or cut_table.version.id == version.id:
            continue
        detail = {"change": describe_change(cut_table.version, version), "point": str(point)}
        waits = Held(cut_table.at_lsn, HeldCause.SNAPSHOT_SCHEMA, WayOut.SNAPSHOT, detail)
        ahead.later[table] = max(start, point)
        if not schema_changes:
            ahead.held[table] = waits
        elif table in lake.held or table in ahead.held or point <= start:
            # Until the snapshot has entered, what does not carry on is null; a table without a row has none of that.
            ahead.changes[table] = SchemaChange(version, called_for=point)
            before = lake.held.get(table) or ahead.held.get(table) or (waits if snapshot.key else None)
            ahead.held |= {} if before is None else {table: before}
    return ahead


def _schema_change_plan(cut: Cut, held: Mapping[TableName, Held], schemas: _SchemasAhead) -> CyclePlan:
    """Return the cycle of an empty range that gives tables another schema."""
    intents = {t: TableIntent(cut.tables[t].at_lsn, c.version.id, c) for t, c in schemas.changes.items()}
    return CyclePlan(cut.position, cut.position, without_range(cut), intents, held, kind=CycleKind.SCHEMA)


def _with_lost_histories(held: Mapping[TableName, Held], cut: Cut | None) -> dict[TableName, Held]:
    """Return `held` with the histories that `cut` says are lost: another cause restores none."""
    before = {} if cut is None else cut.held
    return {t: h.after(before.get(t)) for t, h in held.items()}


def _end_of_range(chain: Chain, expected: _ExpectedSchemas, last: Lsn, cycle_rows: int) -> Lsn:
    stop, rows = expected.start, 0
    for manifest in chain.between(expected.start, last):
        stop = min(manifest.end_lsn, last)
        must_end = expected.end_before(last_entries(manifest))
        if must_end is not None and must_end < stop:
            return must_end
        rows += manifest.rows
        if rows >= cycle_rows:
            return stop
    return stop


def _not_outdated(
    chain: Chain, pending: Mapping[TableName, FinishedCopy], cut: Cut | None, start: Lsn
) -> tuple[dict[TableName, FinishedCopy], dict[TableName, Held]]:
    """Return the snapshots that can enter, and why the others can't.

    The others' table has another schema by now, or the changes after them were removed from the landing.
    """
    timely: dict[TableName, FinishedCopy] = {}
    refused: dict[TableName, Held] = {}
    chain.reread_start()
    lost = {t for t, p in pending.items() if chain.start is not None and p.consistent_point < chain.kept_from}
    oldest = min((p.consistent_point for t, p in pending.items() if t not in lost), default=start)
    passed = [entry for m in chain.between(oldest, start) for entry in m.schemas] if oldest < start else []
    for table, snapshot in pending.items():
        version, point = snapshot.table.version, snapshot.consistent_point
        cut_table = None if cut is None else cut.tables.get(table)
        newer = [taken_in(e.version) for e in passed if e.version.table == table and e.from_lsn > point]
        newer = [v for v in newer if v.id != version.id]
        recorded = None if newer or point >= start else newer_recorded(chain, version, (point, start))
        newer += [] if recorded is None else [recorded]
        at_lsn = point if cut_table is None else cut_table.at_lsn
        if table in lost:
            detail = {"point": str(point), "removed_to": str(chain.kept_from)}
            refused[table] = Held(at_lsn, HeldCause.SNAPSHOT_NOT_FOLLOWED, WayOut.SNAPSHOT, detail)
        elif newer:
            detail = {"change": describe_change(version, newer[0])}
            refused[table] = Held(at_lsn, HeldCause.SNAPSHOT_OUTDATED, WayOut.SNAPSHOT, detail)
        else:
            timely[table] = snapshot
    return timely, refused
