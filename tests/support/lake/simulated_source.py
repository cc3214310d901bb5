"""A PostgreSQL in miniature: tables in memory that write a landing and snapshots, and know their state at every commit.

It shares no code with the engine's folding; real servers are in `fix_postgres.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from lakeproof.catalog.differences import Difference, TableDifferences
from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.change_counts import ChangeCounts
from lakeproof.config.location import LakeLocation
from lakeproof.landing.catalog_history import append_catalog, put_fingerprint
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.decoded_size import DecodedCount
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, row_schema
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.snapshot.copy.chunk_rows import ChunkRows
from lakeproof.snapshot.folder import part_key
from lakeproof.snapshot.state import SnapshotDoc, SnapshotFile, SnapshotTable
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.simulated_rows import Cell, Row, canonical, column_array, schema, text_entries

SOURCE = "shop"
WRITER = "0123456789abcdef0123456789abcdef"
START = 0x1000
HEAD = ChainSource("7300000000000000001", 1, "app", 16384, "shop", "shop", 180006)
States: TypeAlias = dict[TableName, Counter[Row]]


@dataclass(slots=True)
class Event:
    """A landing row in the making; `cells` is None for a truncate."""

    op: str
    cells: Row | None
    unchanged: tuple[int, ...] = ()


@dataclass(slots=True)
class SimulatedTable:
    """A table's rows now; `large` are the ordinals that PostgreSQL would store out of line."""

    version: SchemaVersion
    large: tuple[int, ...] = ()
    rows: list[Row] = field(default_factory=list)
    images: Counter[tuple[str, Row]] = field(default_factory=Counter)
    events: list[tuple[int, Event]] = field(default_factory=list)

    @property
    def key(self) -> list[int]:
        """The ordinals of the key's columns."""
        names = [c.name for c in self.version.columns]
        return [names.index(k) for k in self.version.key]

    def remove(self, row: Row) -> None:
        """Take one such row away; `list.remove` would take a 0.0 for a -0.0."""
        expected = canonical(row)
        del self.rows[next(i for i, r in enumerate(self.rows) if canonical(r) == expected)]

    def key_of(self, row: Row) -> Row:
        """The key's cells."""
        return tuple(row[i] for i in self.key)

    def has(self, key: Row) -> bool:
        """True if a row has this key."""
        return any(canonical(self.key_of(r)) == canonical(key) for r in self.rows)

    def takes(self, row: Row) -> bool:
        """True if the row may come: there is no key, or no other row has this one."""
        return self.version.is_bag or not self.has(self.key_of(row))

    def old_image(self, row: Row) -> Row:
        """The cells that a before or delete row shows."""
        if self.version.identity is Identity.FULL:
            return row
        return tuple(cell if i in self.key else None for i, cell in enumerate(row))


class SimulatedSource:
    """The tables, the transaction in progress, and the landing that they write."""

    def __init__(self, lake: Path | LakeLocation, tables: Sequence[SimulatedTable]) -> None:
        self.folder = Path(str(lake))
        self.tables = {t.version.table: t for t in tables}
        self.lake = SourceLake.open(lake, SOURCE)
        self.chain = Chain.create(self.lake, Incarnation(1), NewHead(Lsn(START), HEAD, WRITER))
        self.lsn = START
        self.states: dict[int, States] = {}
        self.times: dict[int, datetime] = {}
        self._seq = 0
        self._row = 0
        self._xid = 700
        self._transactions = 0
        self._waiting: dict[TableName, list[dict[str, Any]]] = {}
        self._announced: set[str] = set()
        self._remember()

    def table(self, name: str) -> SimulatedTable:
        """Return a table by its bare name."""
        return next(t for n, t in self.tables.items() if n.name == name)

    def insert(self, table: SimulatedTable, row: Row, *, lost: bool = False) -> None:
        """`lost`: the source has it, the stream does not (to be healed by a later snapshot)."""
        table.rows.append(row)
        if not lost:
            self._emit(table, Event("insert", row))

    def update(self, table: SimulatedTable, old: Row, new: Row) -> None:
        """Change a row; large values that stay the same are not sent unless the identity is FULL."""
        table.remove(old)
        table.rows.append(new)
        full = table.version.identity is Identity.FULL
        if full or canonical(table.key_of(old)) != canonical(table.key_of(new)):
            self._emit(table, Event("before", table.old_image(old)))
        same = tuple(i for i in table.large if canonical((old[i],)) == canonical((new[i],)) and new[i] is not None)
        self._emit(table, Event("update", new, () if full else tuple(i for i in same if i not in table.key)))

    def delete(self, table: SimulatedTable, row: Row, *, lost: bool = False) -> None:
        """Remove a row."""
        table.remove(row)
        if not lost:
            self._emit(table, Event("delete", table.old_image(row)))

    def truncate(self, table: SimulatedTable) -> None:
        """Remove all rows."""
        table.rows.clear()
        self._emit(table, Event("truncate", None))

    def commit(self, rng: random.Random) -> Lsn:
        """End the transaction; its end LSN."""
        self.lsn += rng.randrange(8, 200)
        commit_us = 1_700_000_000_000_000 + self.lsn * 1000 + rng.randrange(-500_000, 500_000)
        for rows in self._waiting.values():
            for row in rows:
                row.setdefault("lsn", self.lsn)
                row.setdefault("us", commit_us)
                row.setdefault("xid", self._xid)
        if any(row.get("lsn") == self.lsn for rows in self._waiting.values() for row in rows):
            self.times[self.lsn] = datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=commit_us)
        self._seq, self._xid = 0, self._xid + 1
        self._transactions += 1
        self._remember()
        return Lsn(self.lsn)

    def flush(self) -> None:
        """Write the segment of the transactions since the last one, if there were any."""
        if Lsn(self.lsn) == self.chain.end:
            return
        batches = [self._batch(t, rows) for t, rows in self._waiting.items() if rows]
        schemas = []
        for changes in batches:
            if changes.version.id not in self._announced:
                self._announced.add(changes.version.id)
                first = changes.rows.column("_lp_lsn")[0].as_py()
                schemas.append(SchemaInForce(changes.version, Lsn(first), 0))
        times = [r["us"] for rows in self._waiting.values() for r in rows]
        segment = SegmentWriter(self.chain, WRITER)
        if times:
            segment.add(
                Batch(
                    changes=batches,
                    transactions=self._transactions,
                    rows=self._row,
                    end_lsn=Lsn(self.lsn),
                    first_commit_time_us=min(times),
                    last_commit_time_us=max(times),
                    schemas=schemas,
                    logical_messages=[],
                    next_seq=0,
                )
            )
        segment.finish(Lsn(self.lsn))
        self._waiting, self._row, self._transactions = {}, 0, 0

    def snapshot(self, names: Sequence[str], chunk_rows: int = 7, fingerprint: str | None = None) -> Lsn:
        """Write a snapshot of some tables as they are now (between two transactions)."""
        point = Lsn(self.lsn)
        folder = self.lake.paths.snapshot(Incarnation(1), point)
        tables = {}
        for name in names:
            table = self.table(name)
            chunks = []
            for number, start in enumerate(range(0, len(table.rows), chunk_rows)):
                rows = table.rows[start : start + chunk_rows]
                path = f"{table.version.table.key}/{number:06d}.parquet"
                chunk, file = ChunkRows(table.version, number, point), self.lake.store.create(f"{folder}/{path}")
                values = self._values(table.version, rows)
                formed = chunk.in_lake_form(values)
                with chunk.open(file, formed.schema) as writer:
                    writer.write_batch(formed)
                file.finish()
                decoded = DecodedCount()
                decoded.add(values)
                size, pages = file.bytes_written, (number, number + 1)
                chunks.append(
                    SnapshotFile(path, len(rows), size, file.sha256, chunk.sum.total, decoded.so_far, pages, name)
                )
            tables[table.version.table] = SnapshotTable(table.version, len(table.rows), tuple(chunks), fingerprint)
        now = datetime.now(timezone.utc).isoformat()
        doc = SnapshotDoc(Incarnation(1), point, now, now, "shop", tables)
        self.lake.store.put_if_absent(part_key(folder, 0), doc.to_bytes())
        return point

    def notice(  # noqa: PLR0917  a record's fields, and what was read
        self,
        name: str,
        difference: Difference,
        since: Lsn,
        noticed: Lsn,
        after: str | None = None,
        version: SchemaVersion | None = None,
        fingerprint: Fingerprint | None = None,
    ) -> None:
        """Add a reading of the catalog at the chain's end: a table differs since some place in (`since`, `noticed`]."""
        put = put_fingerprint(
            self.lake,
            Incarnation(1),
            fingerprint or Fingerprint({}, {}, {}),
            number=self.chain.next_number,
            writer=WRITER,
        )
        existing = self.table(name).version
        change = TableDifferences(existing.oid, existing.table, (difference,), None, after, version=version)
        append_catalog(self.chain, WRITER, CatalogRecord(since, noticed, *put, (change,)), noticed)

    def state_at(self, position: Lsn) -> States:
        """Every table's rows at the newest commit at or before a position."""
        return self.states[max(lsn for lsn in self.states if lsn <= int(position))]

    def _remember(self) -> None:
        self.states[self.lsn] = {n: Counter(canonical(r) for r in t.rows) for n, t in self.tables.items()}

    def _emit(self, table: SimulatedTable, event: Event) -> None:
        if event.op == "before":
            seq = self._seq
        else:
            seq, self._seq = self._seq, self._seq + 1
        rows = self._waiting.setdefault(table.version.table, [])
        rows.append({"seq": seq, "row": self._row, "event": event})
        if event.op in ("insert", "update") and event.cells is not None:
            table.images[(event.op, canonical(event.cells))] += 1
        self._row += 1

    def _values(self, version: SchemaVersion, rows: Sequence[Row]) -> pa.RecordBatch:
        names = ["_lp_text", *(f"c{i}" for i in range(len(version.columns)))]
        arrays = [pa.array([text_entries(version, r) for r in rows], pa.string())]
        arrays += [column_array(c, [r[i] for r in rows]) for i, c in enumerate(version.columns)]
        return pa.RecordBatch.from_arrays(arrays, names)

    def _batch(self, name: TableName, rows: Sequence[Mapping[str, Any]]) -> TableBatch:
        version = self.tables[name].version
        events = [r["event"] for r in rows]
        width = len(version.columns)
        sent = [_sent(e, width) for e in events]
        ops = pa.array([e.op for e in events]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
        schema = row_schema(version)
        batch = pa.record_batch(
            [
                pa.array([r["lsn"] for r in rows], pa.int64()),
                pa.array([r["seq"] for r in rows], pa.int64()),
                pa.array([r["row"] for r in rows], pa.int64()),
                ops,
                pa.array([r["xid"] for r in rows], pa.int64()),
                pa.array([r["us"] for r in rows], pa.timestamp("us", "UTC")),
                pa.nulls(len(rows), pa.int64()),
                pa.array([list(e.unchanged) or None for e in events], pa.list_(pa.int16())),
                pa.array([text_entries(version, s) for s in sent], pa.string()),
                *(column_array(c, [s[i] for s in sent]) for i, c in enumerate(version.columns)),
            ],
            schema=schema,
        )
        n = Counter(e.op for e in events)
        unchanged = sum(1 for e in events if e.unchanged)
        counts = ChangeCounts(n["insert"], n["update"], n["delete"], n["truncate"], n["before"], unchanged)
        return TableBatch(version, batch, counts)


def _sent(event: Event, width: int) -> Row:
    """The cells as the stream shows them: nothing if a value is unchanged."""
    cells: tuple[Cell, ...] = event.cells or (None,) * width
    return tuple(None if i in event.unchanged else c for i, c in enumerate(cells))


def two_tables(folder: Path) -> SimulatedSource:
    """Return a source with the tables `a` and `b`, snapshotted at the chain's head."""
    tables = [
        SimulatedTable(schema(name, {"id": "int4", "v": "text"}, ("id",), Identity.DEFAULT, oid))
        for name, oid in (("a", 1), ("b", 2))
    ]
    result = SimulatedSource(folder, tables)
    result.snapshot(["a", "b"])
    return result
