"""What the next cycle takes: its range and segments, the tables it writes or holds, the snapshots that enter.

Nothing is written and no row is read here: a plan is made from manifests, the cut before and the pending snapshots.

A cycle ends with a segment once it has enough rows, and before the first transaction that brings another shape of a table
that is in the lake. Then a cycle of its own gives the table that shape, or the table is held right there and the others go
on (`shape_plan.py`). So does it where the chain's records of the catalog put a table in doubt (`trust.py`). A snapshot whose
table has another shape than in the lake enters after such a cycle, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakeproof.lake.planning.born_tables import births
from lakeproof.lake.planning.catalog_drift import Doubt, Fingerprints, doubts, first_unsettled, trusted_until
from lakeproof.lake.planning.ordinals import segment_bases
from lakeproof.lake.planning.recorded_schemas import idle_turn
from lakeproof.lake.planning.schema_change import describe_change, taken_in
from lakeproof.lake.planning.schema_changes import last_entries, turn
from lakeproof.lake.records.documents import RESNAPSHOT, Cut, CutTable, Held, Reshape, SegmentBase, TableIntent
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest, SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import Pending


@dataclass(frozen=True, slots=True)
class Plan:
    """A cycle to be: the fields of its intent that are not about who runs it."""

    start: Lsn
    end: Lsn
    segments: tuple[SegmentBase, ...]
    tables: Mapping[TableName, TableIntent]
    held: Mapping[TableName, Held]
    kind: str = "apply"


@dataclass(frozen=True, slots=True)
class _Watch:
    """The shapes that tables may have from a place on."""

    start: Lsn
    shapes: Sequence[tuple[TableName, Lsn, SchemaVersion]]

    def end_before(self, entries: Iterable[SchemaEntry]) -> Lsn | None:
        """Where the range must end for one of `entries`: right before the first that is another shape."""
        ends = [
            max(self.start, Lsn(int(entry.from_lsn) - 1))
            for entry in entries
            for table, since, version in self.shapes
            if table == entry.version.table and entry.from_lsn > since and taken_in(entry.version).id != version.id
        ]
        return min(ends, default=None)


@dataclass(slots=True)
class _Trusted:
    """What the catalog's records leave to be trusted; `bounds` are where the range must end for it."""

    chain: Chain
    start: Lsn
    found: list[Doubt]
    bounds: list[Lsn] = field(default_factory=list)

    def hold(
        self, tables: Mapping[TableName, CutTable], held: Mapping[TableName, Held], fingerprints: Fingerprints
    ) -> dict[TableName, Held]:
        """`held`, with the lake's tables that are in doubt where they stand; those that will be, bound the range."""
        result = dict(held)
        newest = {doubt.table: doubt for doubt in self.found}
        about = newest.keys()
        for table in sorted(about & held.keys()):
            # Whatever held it, its way out is another one where no snapshot of it can be made.
            if newest[table].is_gone:
                result[table] = newest[table].held(held[table].at_lsn)
        for table in sorted(about & tables.keys() - held.keys()):
            at = tables[table]
            trusted = trusted_until(self.chain, self.found, at, fingerprints(table, at.snapshot_lsn))
            if trusted is None:
                continue
            until, doubt = trusted
            if until <= at.at_lsn:
                result[table] = doubt.held(at.at_lsn)
            else:
                self.bounds.append(until)
        return result

    def admit(
        self, pending: Mapping[TableName, Pending], tables: Mapping[TableName, CutTable]
    ) -> tuple[dict[TableName, Pending], dict[TableName, Held]]:
        """The snapshots that can enter, and why the others can't: their table differed by then, or since."""
        admitted: dict[TableName, Pending] = {}
        refused: dict[TableName, Held] = {}
        for table, found in pending.items():
            point = found.consistent_point
            doubt = first_unsettled(self.found, found.table.version, point, found.table.fingerprint)
            if doubt is None:
                admitted[table] = found
            elif max(point, self.start) <= doubt.holds_from:
                admitted[table] = found
                self.bounds.append(doubt.holds_from)
            else:
                known = tables.get(table)
                refused[table] = doubt.held(point if known is None else known.at_lsn)
        return admitted, refused


def plan_cycle(
    chain: Chain,
    cut: Cut | None,
    pending: Mapping[TableName, Pending],
    number: CycleNumber,
    *,
    end: Lsn,
    cycle_rows: int,
    fingerprints: Fingerprints = lambda _table, _point: None,
    reshapes: bool = True,
) -> Plan | None:
    """The cycle after `cut`, up to `end` at most; None where there is nothing to do.

    `fingerprints` gives those of the snapshots that have entered. Without `reshapes` a snapshot of another shape waits, and
    no table enters that was born in the stream.
    """
    start = chain.head.end_lsn if cut is None else cut.position
    limit = min(end, chain.end)
    if limit < start:
        return None
    tables = {} if cut is None else cut.tables
    held = {} if cut is None else dict(cut.held)
    pending, refused = _timely(chain, pending, cut, start)
    held |= refused
    trusted = _Trusted(chain, start, doubts(chain, min([start, *(p.consistent_point for p in pending.values())])))
    held = trusted.hold(tables, held, fingerprints)
    pending, refused = trusted.admit(pending, tables)
    held |= refused
    found = births(chain, cut, start) if reshapes else {}
    born = {t: b for t, b in found.items() if t not in pending and b.enters_at <= limit}
    pending |= {t: b.pending for t, b in born.items()}
    shapes = _shapes_to_be(chain, tables, held, pending, start, limit, reshapes=reshapes)
    held |= shapes.held
    if shapes.reshape:
        return _reshaping(start, tables, _told(chain, held, cut), shapes)
    pending = {t: p for t, p in pending.items() if t not in shapes.later}
    in_force = [(t, c.at_lsn, c.version) for t, c in tables.items() if t not in held]
    # A born table's place is where it enters: before it, another one may have had its name.
    places = {t: born[t].enters_at if t in born else p.consistent_point for t, p in pending.items()}
    in_force += [(t, place, pending[t].table.version) for t, place in places.items()]
    watch = _Watch(start, in_force)
    stop = _end_of_range(
        chain, watch, min([limit, *trusted.bounds, *shapes.bounds, *shapes.later.values()]), cycle_rows
    )
    entering = {t: p for t, p in pending.items() if places[t] <= stop}
    known = set() if cut is None else set(cut.held)
    if stop == start and not entering and held.keys() <= known:
        return None
    held = {t: h for t, h in _told(chain, held, cut).items() if t not in entering}
    changed = {file.table for manifest in chain.between(start, stop) for file in manifest.files}
    still = held.keys() | entering.keys()
    active = {t: TableIntent(tables[t].at_lsn, tables[t].version.id) for t in changed & tables.keys() - still}
    active |= {t: _entering(p, born=t in born) for t, p in entering.items()}
    first = min([start, *(p.consistent_point for p in entering.values())])
    # One more: the first ordinal is kept for a `reset`.
    rows = max((p.table.rows + 1 for p in entering.values()), default=0)
    return Plan(start, stop, segment_bases(chain, first, stop, number, snapshot_rows=rows), active, held)


def _entering(found: Pending, *, born: bool) -> TableIntent:
    version = found.table.version
    if born:
        return TableIntent(found.consistent_point, version.id, born=version)
    return TableIntent(found.consistent_point, version.id, found.key)


@dataclass(slots=True)
class _Shapes:
    """The tables that get another shape now, those held, and the snapshots that enter later: where the range ends for it.

    `bounds` are where it ends for a shape that the catalog's records have later.
    """

    reshape: dict[TableName, Reshape] = field(default_factory=dict)
    held: dict[TableName, Held] = field(default_factory=dict)
    later: dict[TableName, Lsn] = field(default_factory=dict)
    bounds: list[Lsn] = field(default_factory=list)


def _shapes_to_be(  # noqa: PLR0917  what a plan knows
    chain: Chain,
    tables: Mapping[TableName, CutTable],
    held: Mapping[TableName, Held],
    pending: Mapping[TableName, Pending],
    start: Lsn,
    limit: Lsn,
    *,
    reshapes: bool,
) -> _Shapes:
    """What the stream brings right after `start`, and what snapshots of other shapes than the lake's call for."""
    found = _Shapes()
    trusted = {t: c for t, c in tables.items() if t not in held}
    if reshapes:
        idle, found.bounds = idle_turn(chain, start, trusted)
        found.reshape, found.held = dict(idle.reshape), dict(idle.held)
        trusted = {t: c for t, c in trusted.items() if t not in found.reshape and t not in found.held}
    if start < limit:
        here = turn(chain, start, trusted)
        found.reshape |= here.reshape
        found.held |= here.held
        found.later = dict.fromkeys(here.waits, start)
    for table, snapshot in pending.items():
        at, point, version = tables.get(table), snapshot.consistent_point, snapshot.table.version
        if at is None or at.version.id == version.id:
            continue
        told = f"{describe_change(at.version, version)}; the snapshot at {point} is to enter"
        found.later[table] = max(start, point)
        if not reshapes:
            found.held[table] = Held(at.at_lsn, told, RESNAPSHOT)
        elif table in held or table in found.held or point <= start:
            # Until the snapshot has entered, what does not carry on is null.
            found.reshape[table] = Reshape(version, called_for=point)
            found.held[table] = held.get(table) or found.held.get(table) or Held(at.at_lsn, told, RESNAPSHOT)
    return found


def _reshaping(
    start: Lsn, tables: Mapping[TableName, CutTable], held: Mapping[TableName, Held], shapes: _Shapes
) -> Plan:
    """The cycle of an empty range that gives tables another shape."""
    intents = {t: TableIntent(tables[t].at_lsn, r.version.id, None, r) for t, r in shapes.reshape.items()}
    return Plan(start, start, (), intents, held, kind="schema")


def _told(chain: Chain, held: Mapping[TableName, Held], cut: Cut | None) -> dict[TableName, Held]:
    """The same with remedies to be typed, and what `cut` knew to be lost of histories: another reason restores none."""
    before = {} if cut is None else cut.held
    return {t: h.named(chain.paths.source, t).after(before.get(t)) for t, h in held.items()}


def _end_of_range(chain: Chain, watch: _Watch, limit: Lsn, cycle_rows: int) -> Lsn:
    stop, rows = watch.start, 0
    for manifest in chain.between(watch.start, limit):
        stop = min(manifest.end_lsn, limit)
        must = watch.end_before(last_entries(manifest))
        if must is not None and must < stop:
            return must
        rows += manifest.rows
        if rows >= cycle_rows:
            return stop
    return stop


def _timely(
    chain: Chain, pending: Mapping[TableName, Pending], cut: Cut | None, start: Lsn
) -> tuple[dict[TableName, Pending], dict[TableName, Held]]:
    """The snapshots that can enter, and why the others can't.

    Their table has another shape by now, or what followed them has been removed from the landing.
    """
    timely: dict[TableName, Pending] = {}
    refused: dict[TableName, Held] = {}
    chain.rebase()
    lost = {t for t, p in pending.items() if chain.base is not None and p.consistent_point < chain.kept_from}
    oldest = min((p.consistent_point for t, p in pending.items() if t not in lost), default=start)
    passed = list(_shapes(chain.between(oldest, start))) if oldest < start else []
    for table, found in pending.items():
        version = found.table.version
        known = None if cut is None else cut.tables.get(table)
        newer = [e.version for e in passed if e.version.table == table and e.from_lsn > found.consistent_point]
        newer = [v for v in map(taken_in, newer) if v.id != version.id]
        at = found.consistent_point if known is None else known.at_lsn
        if table in lost:
            reason = f"what followed its snapshot at {found.consistent_point} was removed from the landing"
            refused[table] = Held(at, f"{reason}, up to {chain.kept_from}", RESNAPSHOT)
        elif newer:
            refused[table] = Held(at, f"after its snapshot {describe_change(version, newer[0])}", RESNAPSHOT)
        else:
            timely[table] = found
    return timely, refused


def _shapes(manifests: Iterable[Manifest]) -> Iterable[SchemaEntry]:
    for manifest in manifests:
        yield from manifest.schemas
