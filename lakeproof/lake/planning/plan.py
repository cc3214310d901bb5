"""Decides what the next cycle does: its range and segments, the tables it writes or holds, the snapshots that enter.

Nothing is written and no row is read here: a plan is made from manifests, the previous cut and the pending snapshots.

A cycle ends with a segment once it has enough rows, and before the first transaction that brings another schema of a table
in the lake. Then a separate cycle gives the table that schema, or the table is held right there and all other tables go on
(`schema_changes`). The same happens if the chain's records of the catalog make a table suspect (`catalog_drift`). A snapshot
whose table has another schema than in the lake enters after such a cycle, too.

Each step makes a value of the one before: what is suspect → what may enter → the schemas ahead → the range → the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakeproof.lake.planning.catalog_drift import (
    Fingerprints,
    SuspectedChange,
    first_not_covered,
    suspected_changes,
    usable_until,
)
from lakeproof.lake.planning.entries import Entrant, EntryLimit, created_tables_to_enter, entering_until
from lakeproof.lake.planning.landing.order import CycleOrdinals, cycle_ordinals, range_ordinals
from lakeproof.lake.planning.schema_change import by_oid, describe_change, last_entries, renamed_away, taken_in
from lakeproof.lake.planning.schema_changes import (
    CatalogUnread,
    SchemaDecision,
    decide_changes,
    decide_recorded_changes,
    newer_recorded,
    under_other_names,
    way_out_of,
)
from lakeproof.lake.planning.set_aside import with_paused
from lakeproof.lake.records.documents import (
    Changes,
    Copy,
    Created,
    Cut,
    CutTable,
    CycleKind,
    Keys,
    SchemaChange,
    TableIntent,
)
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.copy.keyed_copy import PlacedCopy
from lakeproof.snapshot.folder import FinishedCopy, snapshot_fingerprints


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

    `entries` limits the tables that enter. Without `schema_changes` a snapshot of another schema waits, and no table that
    was created in the stream enters.
    """

    end: Lsn
    cycle_rows: int = 1 << 62
    entries: EntryLimit = field(default_factory=EntryLimit)
    schema_changes: bool = True


@dataclass(frozen=True, slots=True)
class _Before:
    """The lake before the cycle: the `cut`, None if no cycle has ended, and the range that the cycle may take."""

    chain: Chain
    cut: Cut | None
    start: Lsn
    last: Lsn

    @property
    def tables(self) -> Mapping[TableName, CutTable]:
        """The tables in the lake."""
        return {} if self.cut is None else self.cut.tables

    @property
    def held(self) -> Mapping[TableName, Held]:
        """The tables that the cut holds."""
        return {} if self.cut is None else self.cut.held


@dataclass(frozen=True, slots=True)
class _Suspected:
    """The changes that the catalog's records suspect; `bounds` are the positions at which the range must end for them.

    `held` are the tables that stand still by now, `copies` those that are not too old to enter.
    """

    changes: Sequence[SuspectedChange]
    copies: Mapping[TableName, FinishedCopy]
    held: Mapping[TableName, Held]
    bounds: Sequence[Lsn]


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The tables that may enter with the cycle, those held by then, and where the range must end."""

    entrants: Mapping[TableName, Entrant]
    held: Mapping[TableName, Held]
    bounds: Sequence[Lsn]


@dataclass(frozen=True, slots=True)
class _SchemasAhead:
    """The tables that get another schema now, those held, and those that enter later, with where the range ends.

    `bounds` are where the range ends for a schema that the catalog's records have later.
    """

    changes: Mapping[TableName, SchemaChange]
    held: Mapping[TableName, Held]
    later: Mapping[TableName, Lsn]
    bounds: Sequence[Lsn]


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
    fingerprints: Fingerprints | None = None,
    keyed: PlacedCopy | None = None,
) -> CyclePlan | None:
    """Return the cycle after `cut`; None if there is nothing to do.

    `fingerprints` gives those of the snapshots that have entered, by default from the lake. `keyed` enters if the cycle ends
    at its point, for tables that the cycle neither holds nor gives a snapshot or another schema.
    """
    before = _Before(chain, cut, chain.head.end_lsn if cut is None else cut.position, min(limit.end, chain.end))
    if before.last < before.start:
        return None
    lookup = fingerprints or snapshot_fingerprints(chain.lake, chain.incarnation)
    admitted = _admit(before, _suspect(before, pending, lookup), created=limit.schema_changes)
    schemas = _schemas_ahead(before, admitted, in_place=limit.schema_changes)
    if cut is not None and schemas.changes:
        return _schema_change_plan(cut, schemas)
    entrants = {t: entrant for t, entrant in admitted.entrants.items() if t not in schemas.later}
    bounds = [before.last, *admitted.bounds, *schemas.bounds, *schemas.later.values()]
    stop = _end_of_range(before, entrants, schemas.held, min(bounds), limit.cycle_rows)
    stop, entering = entering_until(entrants, limit.entries, (before.start, stop))
    return _planned(before, entering, schemas.held, stop, keyed)


def _suspect(before: _Before, pending: Mapping[TableName, FinishedCopy], fingerprints: Fingerprints) -> _Suspected:
    """Return what the catalog's records suspect: the lake's tables are held where they stand, or will be, at a bound."""
    copies, refused = _not_outdated(before, pending)
    changes = suspected_changes(before.chain, min([before.start, *(c.consistent_point for c in copies.values())]))
    held = {**before.held, **refused}
    newest = {change.table: change for change in changes}
    result, bounds = dict(held), list[Lsn]()
    for table in sorted(newest.keys() & held.keys()):
        # If no snapshot of the table can be made, the way out changes, whatever the cause. A pause ends where the table is
        # published again, even if nobody has asked for it.
        if newest[table].is_gone or (held[table].cause is HeldCause.PAUSED and newest[table].comes_in):
            result[table] = newest[table].held(held[table].at_lsn)
    for table in sorted(newest.keys() & before.tables.keys() - held.keys()):
        cut_table = before.tables[table]
        losing = [change for change in changes if not _loses_nothing(before.chain, change, cut_table)]
        usable = usable_until(before.chain, losing, cut_table, fingerprints(table, cut_table.snapshot_lsn))
        if usable is None:
            continue
        until, change = usable
        if until <= cut_table.at_lsn:
            result[table] = change.held(cut_table.at_lsn)
        else:
            bounds.append(until)
    return _Suspected(changes, copies, result, bounds)


def _admit(before: _Before, suspected: _Suspected, *, created: bool) -> _Admitted:
    """Return the tables that can enter; a copy is refused if its table had changed by then, or has since.

    Tables that were created in the stream are among them if `created`.
    """
    entrants, held, bounds = dict[TableName, Entrant](), dict(suspected.held), list(suspected.bounds)
    for table, copy in suspected.copies.items():
        point = copy.consistent_point
        change = first_not_covered(suspected.changes, copy.table.version, point, copy.table.fingerprint)
        if change is None or max(point, before.start) <= change.holds_from:
            entrants[table] = Entrant(copy)
            bounds += [] if change is None else [change.holds_from]
        else:
            cut_table = before.tables.get(table)
            held[table] = change.held(point if cut_table is None else cut_table.at_lsn)
    for table, one in created_tables_to_enter(before.chain, before.cut, before.start).items() if created else ():
        if table not in entrants and one.enters_at <= before.last:
            entrants[table] = Entrant(one.pending, one)
    return _Admitted(entrants, with_paused(held, before.chain.lake), bounds)


def _planned(
    before: _Before,
    entering: Mapping[TableName, Entrant],
    held: Mapping[TableName, Held],
    stop: Lsn,
    keyed: PlacedCopy | None,
) -> CyclePlan | None:
    """Return the cycle of the range up to `stop`; None if it would do nothing."""
    chain, cut, start, tables = before.chain, before.cut, before.start, before.tables
    by_keys = {} if cut is None else _by_keys(keyed, cut, held.keys() | entering.keys(), stop)
    if stop == start and not entering and not by_keys and held.keys() <= before.held.keys():
        return None
    changed = {file.table for manifest in chain.between(start, stop) for file in manifest.files}
    following = changed & tables.keys() - held.keys() - entering.keys()
    intents = {
        **{t: _entry(e, was_held=t in held, is_new=t not in tables) for t, e in entering.items()},
        **{t: TableIntent(tables[t].at_lsn, tables[t].version.id, Changes()) for t in following},
        **by_keys,
    }
    first = min([start, *(e.copy.consistent_point for e in entering.values())])
    ordinals = range_ordinals(chain, cut, first, stop)
    at_end = {t: h for t, h in _with_lost_histories(held, cut).items() if t not in entering}
    return CyclePlan(start, stop, ordinals, intents, at_end)


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


def _entry(entrant: Entrant, *, was_held: bool, is_new: bool) -> TableIntent:
    copy, created, version = entrant.copy, entrant.created, entrant.copy.table.version
    if created is not None:
        lost = not created.whole and (was_held or is_new)
        return TableIntent(copy.consistent_point, version.id, Created(version, lost))
    return TableIntent(copy.consistent_point, version.id, Copy(copy.key, was_held))


def _schemas_ahead(before: _Before, admitted: _Admitted, *, in_place: bool) -> _SchemasAhead:
    """Return what the stream brings right after the range's start, and what copies of other schemas call for.

    Unless a schema may be changed `in_place`, copies of other schemas wait.
    """
    chain, start, tables = before.chain, before.start, before.tables
    copies = {t: entrant.copy for t, entrant in admitted.entrants.items()}
    following = {t: c for t, c in tables.items() if t not in admitted.held}
    decided, bounds = dict[TableName, SchemaDecision](), list[Lsn]()
    if in_place:
        decided, bounds = decide_recorded_changes(chain, start, following, copies)
        following = {t: c for t, c in following.items() if t not in decided}
    if start < before.last:
        decided |= decide_changes(chain, start, following)
    changes = {t: d for t, d in decided.items() if isinstance(d, SchemaChange)}
    held = {**admitted.held, **{t: d for t, d in decided.items() if isinstance(d, Held)}}
    later = {t: start for t, d in decided.items() if isinstance(d, CatalogUnread)}
    for table, copy in copies.items():
        cut_table, point, version = tables.get(table), copy.consistent_point, copy.table.version
        if cut_table is None or cut_table.version.id == version.id:
            continue
        detail = {"change": describe_change(cut_table.version, version), "point": str(point)}
        waits = Held(cut_table.at_lsn, HeldCause.SNAPSHOT_SCHEMA, WayOut.SNAPSHOT, detail)
        later[table] = max(start, point)
        if not in_place:
            held[table] = waits
        elif table in held or point <= start:
            # Until the copy has entered, what does not carry on is null; a table without a row has none of that.
            changes[table] = SchemaChange(version, called_for=point)
            if table not in held and copy.key:
                held[table] = waits
    return _SchemasAhead(changes, held, later, bounds)


def _schema_change_plan(cut: Cut, schemas: _SchemasAhead) -> CyclePlan:
    """Return the cycle of an empty range that gives tables another schema."""
    held = _with_lost_histories(schemas.held, cut)
    intents = {t: TableIntent(cut.tables[t].at_lsn, c.version.id, c) for t, c in schemas.changes.items()}
    return CyclePlan(cut.position, cut.position, without_range(cut), intents, held, kind=CycleKind.SCHEMA)


def _with_lost_histories(held: Mapping[TableName, Held], cut: Cut | None) -> dict[TableName, Held]:
    """Return `held` with the histories that `cut` says are lost: another cause restores none."""
    before = {} if cut is None else cut.held
    return {t: h.after(before.get(t)) for t, h in held.items()}


def _end_of_range(
    before: _Before, entrants: Mapping[TableName, Entrant], held: Mapping[TableName, Held], last: Lsn, cycle_rows: int
) -> Lsn:
    """Return where the range ends: after enough rows, and before a table's schema changes."""
    in_force = [(c.at_lsn, c.version) for t, c in before.tables.items() if t not in held]
    expected = [*in_force, *((entrant.place, entrant.copy.table.version) for entrant in entrants.values())]
    # A manifest may announce every table: each is looked up.
    placed, named = by_oid(expected), dict[TableName, list[tuple[Lsn, SchemaVersion]]]()
    for since, version in expected:
        named.setdefault(version.table, []).append((since, version))
    stop, rows = before.start, 0
    for manifest in before.chain.between(before.start, last):
        stop = min(manifest.end_lsn, last)
        changes = [
            max(before.start, Lsn(int(entry.from_lsn) - 1))
            for entry in last_entries(manifest)
            for since, version in (*named.get(entry.version.table, ()), *placed.get(entry.version.oid, ()))
            if entry.from_lsn > since and _changes(version, entry.version)
        ]
        changes += [max(before.start, place) for place, _, _ in under_other_names(before.chain, manifest, placed)]
        if changes and min(changes) < stop:
            return min(changes)
        rows += manifest.rows
        if rows >= cycle_rows:
            return stop
    return stop


def _changes(version: SchemaVersion, landed: SchemaVersion) -> bool:
    """True if rows of `landed` are not rows of a table with `version`, or are them under another name."""
    own = landed.table == version.table and taken_in(landed).id != version.id
    return own or renamed_away(version, landed)


def _not_outdated(
    before: _Before, pending: Mapping[TableName, FinishedCopy]
) -> tuple[dict[TableName, FinishedCopy], dict[TableName, Held]]:
    """Return the copies that can enter, and the reasons of the copies that can't.

    The others' table has another schema by now, or the changes after them were removed from the landing.
    """
    chain, start = before.chain, before.start
    timely: dict[TableName, FinishedCopy] = {}
    refused: dict[TableName, Held] = {}
    chain.reread_start()
    lost = {t for t, p in pending.items() if chain.start is not None and p.consistent_point < chain.kept_from}
    oldest = min((p.consistent_point for t, p in pending.items() if t not in lost), default=start)
    passed = list(chain.between(oldest, start)) if oldest < start else []
    entries = [entry for manifest in passed for entry in manifest.schemas]
    placed = by_oid((p.consistent_point, p.table.version) for p in pending.values())
    renamed = {v.table: other for manifest in passed for _, v, other in under_other_names(chain, manifest, placed)}
    for table, snapshot in pending.items():
        version, point = snapshot.table.version, snapshot.consistent_point
        cut_table = before.tables.get(table)
        newer = [taken_in(e.version) for e in entries if e.from_lsn > point and _changes(version, e.version)]
        newer += [renamed[table]] if table in renamed else []
        recorded = None if newer or point >= start else newer_recorded(chain, version, (point, start))
        newer += [] if recorded is None else [recorded]
        at_lsn = point if cut_table is None else cut_table.at_lsn
        if table in lost:
            detail = {"point": str(point), "removed_to": str(chain.kept_from)}
            refused[table] = Held(at_lsn, HeldCause.SNAPSHOT_NOT_FOLLOWED, WayOut.SNAPSHOT, detail)
        elif newer:
            detail = {"change": describe_change(version, newer[0])}
            way_out = way_out_of(chain, version, newer[0])
            refused[table] = Held(at_lsn, HeldCause.SNAPSHOT_OUTDATED, way_out, detail)
        else:
            timely[table] = snapshot
    return timely, refused
