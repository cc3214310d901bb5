"""Landings made by hand: schema versions, batches of rows, chains."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakeproof.change_counts import ChangeCounts
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource, Manifest
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, row_schema
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake

WRITER = "0123456789abcdef0123456789abcdef"
OTHER_WRITER = "f" * 32
START = Lsn(1000)
HEAD = ChainSource("7300000000000000001", 1, "app", 16384, "shop", "shop", 180006)


def version(name: str = "orders", oid: int = 16384, kind: str = "int4") -> SchemaVersion:
    """A table with the key `id` and a column `note`."""
    columns = (
        Column("id", Oid(23), -1, "integer", kind, 1, identity=True),
        Column("note", Oid(25), -1, "text", "text", 2, identity=False),
    )
    return SchemaVersion(TableName("public", name), Oid(oid), Identity.DEFAULT, columns, ("id",))


def inserts(schema: SchemaVersion, lsn: int, count: int, *, announced: bool = False) -> Batch:
    """Return a transaction that inserts rows 0 to count - 1, committed at `lsn` microseconds."""
    rows = pa.record_batch(
        [
            pa.array([lsn] * count, pa.int64()),
            pa.array(range(count), pa.int64()),
            pa.array(range(count), pa.int64()),
            pa.array(["insert"] * count).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            pa.array([7] * count, pa.int64()),
            pa.array([lsn] * count, pa.timestamp("us", "UTC")),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.list_(pa.int16())),
            pa.nulls(count, pa.string()),
            pa.array(range(count), pa.int32()),
            pa.array([f"note {i}" for i in range(count)]),
        ],
        schema=row_schema(schema),
    )
    return Batch(
        changes=[TableBatch(schema, rows, ChangeCounts(count, 0, 0, 0, 0, 0))],
        transactions=1,
        rows=count,
        end_lsn=Lsn(lsn),
        first_commit_time_us=lsn,
        last_commit_time_us=lsn,
        schemas=[SchemaInForce(schema, Lsn(lsn), 0)] if announced else [],
        logical_messages=[],
        next_seq=count,
    )


def new_chain(lake: Path) -> Chain:
    """A landing that has just begun, at `START`."""
    return chain_in(LocalStore(lake))


def chain_in(store: LocalStore) -> Chain:
    """Return a landing that has just begun, in a test's own store."""
    return Chain.create(SourceLake(store, LakePaths("shop")), Incarnation(1), NewHead(START, HEAD, WRITER))


def reopen(chain: Chain) -> Chain:
    """Open the same landing as another process would."""
    return Chain.open(SourceLake.open(chain.lake.url(""), chain.lake.source), chain.incarnation)


def add_segment(chain: Chain, end: int, count: int = 3, writer: str = WRITER) -> Manifest:
    """Add a manifest with `count` inserts, or a progress manifest if that is 0."""
    segment = SegmentWriter(chain, writer)
    if count:
        segment.add(inserts(version(), end, count, announced=chain.next_number == 1))
    return segment.finish(Lsn(end))
