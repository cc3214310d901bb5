"""A lake of plain Python that takes the cycles as they are planned: what they must come to, without a JVM.

The plan and the landing are the real ones. Rows are added up here, one after the other, by attribute numbers, so that
nothing is shared with the engine's own way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from psycopg.sql import SQL, Identifier, Literal
from typing_extensions import LiteralString

from lakeproof.lake.columns import in_lake
from lakeproof.lake.planning.plan import CyclePlan, RangeLimit, plan_cycle
from lakeproof.lake.planning.schema_change import compare_schemas
from lakeproof.lake.planning.schema_changes import defaults_for_old_rows
from lakeproof.lake.records.documents import Created, Cut, CutTable, CycleKind, HistorySum, SchemaChange, next_number
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import open_file, slices
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.schema import Column, SchemaVersion
from tests.support.ingest.fix_drain import Drained, own_values

# A row: attribute number → value. Values are as PostgreSQL's driver gives them.
Cells = dict[int, Any]
_CYCLES_MAX = 200
_SENT: LiteralString = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""


def cut_after(
    plan: CyclePlan, before: Cut | None, tables: Mapping[TableName, CutTable], incarnation: Incarnation
) -> Cut:
    """The cut that ends a plan whose cycle has left these tables."""
    number, time = next_number(before), "2026-11-01T00:00:00.000000Z"
    held, ordinals = dict(plan.held), plan.ordinals.cut
    return Cut(number, plan.kind, incarnation, plan.end, None, tables, 1, "0" * 64, time, held, ordinals)


@dataclass
class ModelledLake:
    """The lake's tables after the newest planned cycle, and the rows that each has."""

    drained: Drained
    cut: Cut | None = None
    rows: dict[TableName, list[Cells]] = field(default_factory=dict)
    ever_held: set[TableName] = field(default_factory=set)
    entered: Counter[TableName] = field(default_factory=Counter)

    def compact(self, cycle_rows: int = 1000) -> None:
        """Take every cycle that can be planned."""
        chain = self.drained.chain()
        for _ in range(_CYCLES_MAX):
            plan = plan_cycle(chain, self.cut, {}, RangeLimit(chain.end, cycle_rows))
            if plan is None:
                return
            self._take(chain, plan)
        raise AssertionError("cycles are planned for ever")

    def difference(self) -> dict[str, Any]:
        """Compare every table of the lake that is not held with the source: what each side has and the other has not."""
        assert self.cut is not None
        differences: dict[str, Any] = {}
        for table, cut_table in self.cut.tables.items():
            if table in self.cut.held:
                continue
            columns, where = cut_table.version.columns, Identifier(table.schema, table.name)
            names = [name for (name,) in self.drained.database.rows(_SENT, [where.as_string()])]
            query = SQL("SELECT {} FROM ONLY {}").format(SQL(", ").join(map(Identifier, names)), where)
            source = Counter(self.drained.database.rows(query))
            lake = Counter(tuple(row[c.attnum] for c in columns) for row in self.rows[table])
            if ([c.name for c in columns], lake) != (names, source):
                differences[str(table)] = (names, source - lake, [c.name for c in columns], lake - source)
        return differences

    def _take(self, chain: Chain, plan: CyclePlan) -> None:
        tables = {} if self.cut is None else dict(self.cut.tables)
        tables = {t: c if t in plan.held else replace(c, at_lsn=plan.end) for t, c in tables.items()}
        self.ever_held |= plan.held.keys()
        for table, intent in plan.tables.items():
            change = intent.work
            if isinstance(change, SchemaChange):
                before = tables[table]
                self.rows[table] = self._converted(
                    self.rows[table], before.version, change.version, change.default_for_old_rows
                )
                tables[table] = replace(before, version=change.version)
                continue
            cut_table = tables.get(table)
            start = plan.start
            if isinstance(change, Created):
                start = intent.from_lsn
                self.entered[table] += 1
                self.rows[table] = []
                events = 0 if cut_table is None else cut_table.history_sum.rows
                cut_table = CutTable(plan.end, start, 0, 0, change.version, chain.incarnation, chain.incarnation)
                cut_table = replace(cut_table, history_sum=HistorySum(events))
            assert cut_table is not None
            events = self._apply(chain, cut_table, start, plan.end)
            total = HistorySum(cut_table.history_sum.rows + events)
            tables[table] = replace(cut_table, at_lsn=plan.end, history_sum=total)
        assert plan.kind in {CycleKind.APPLY, CycleKind.SCHEMA}
        self.cut = cut_after(plan, self.cut, tables, chain.incarnation)

    def _apply(self, chain: Chain, cut_table: CutTable, start: Lsn, end: Lsn) -> int:
        versions = {e.version.id: e.version for m in chain.manifests() for e in m.schemas}
        version, events = cut_table.version, 0
        landed = []
        for piece in slices(chain, start, end, version.table):
            if piece.file.oid != version.oid:
                continue
            with open_file(chain, piece.file) as opened:
                rows = opened.read().to_pylist()
            landed += [(versions[piece.file.schema_id], row) for row in rows if start < Lsn(row["_lp_lsn"]) <= end]
        for own, row in sorted(landed, key=lambda pair: int(pair[1]["_lp_ord"])):
            events += 1
            difference = compare_schemas(in_lake(own), version)
            defaults = (
                defaults_for_old_rows(chain, cut_table.snapshot_lsn, difference, end) if own.id != version.id else {}
            )
            assert defaults is not None
            self._event(version, own, row, defaults)
        return events

    def _event(
        self, version: SchemaVersion, own: SchemaVersion, row: dict[str, Any], defaults: Mapping[int, str]
    ) -> None:
        rows = self.rows[version.table]
        if row["_lp_op"] == "truncate":
            rows.clear()
            return
        cells = dict(zip((c.attnum for c in own.columns), own_values(own, row), strict=True))
        cells = self._converted([cells], own, version, defaults)[0]
        key_of = itemgetter(*(c.attnum for c in version.columns if c.name in version.key or version.is_bag))
        key = key_of(cells)
        place = next((place for place, each in enumerate(rows) if key_of(each) == key), None)
        match row["_lp_op"]:
            case "insert":
                assert version.is_bag or place is None, "a key that is there"
                rows.append(cells)
            case "before" | "delete":
                assert place is not None, "a key that is not there"
                del rows[place]
            case "update":
                if place is not None and not version.is_bag:
                    del rows[place]
                assert not row["_lp_unchanged"]
                rows.append(cells)
            case other:
                raise AssertionError(other)

    def _converted(
        self, rows: list[Cells], old: SchemaVersion, new: SchemaVersion, defaults: Mapping[int, str]
    ) -> list[Cells]:
        """Return rows of one schema as rows of another."""
        difference = compare_schemas(old, new)
        added = {c.attnum: self._value(c, defaults.get(c.attnum)) for c in difference.added}
        return [{**{b.attnum: row[a.attnum] for a, b in difference.carried}, **added} for row in rows]

    def _value(self, column: Column, text: str | None) -> Any:
        query = SQL("SELECT {}::{}").format(Literal(text), Identifier(column.type_name))
        return None if text is None else self.drained.database.value(query)
