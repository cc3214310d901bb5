"""One document of each kind that a landing has, with every field set.

The bytes that each must have are in `golden/`; `test_lake_formats.py` compares them.
"""

from __future__ import annotations

from dataclasses import replace

from lakeproof.catalog.differences import AddedColumn, Difference, TableCreated, TableDifferences
from lakeproof.change_counts import ChangeCounts
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain_start import ChainStart
from lakeproof.landing.incarnation_record import Follows, IncarnationRecord
from lakeproof.landing.segments.manifest import (
    Decoded,
    LandedCommit,
    LogicalMessageFile,
    Manifest,
    ManifestKind,
    SchemaEntry,
    SegmentFile,
)
from lakeproof.landing.stuck import Stuck
from lakeproof.landing.timelines import Switch, TimelineDoc
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName, Xid
from lakeproof.schema import Column, Identity, SchemaVersion
from tests.core.landing.landing_segments import HEAD, WRITER, version

MADE = SchemaVersion(
    TableName("public", "made"),
    Oid(16386),
    Identity.DEFAULT,
    (Column("id", Oid(23), -1, "int4", "int4", 1, identity=True),),
    ("id",),
)
HEAD_MANIFEST = Manifest(
    ManifestKind.HEAD, 0, Incarnation(1), 0, Lsn(16), Lsn(16), None, WRITER, "2026-01-01T00:00:00.000000Z", source=HEAD
)
SEGMENT = Manifest(
    kind=ManifestKind.SEGMENT,
    number=1,
    incarnation=Incarnation(1),
    first_ordinal=1 << 33,
    start_lsn=Lsn(16),
    end_lsn=Lsn.parse("1/20"),
    previous_sha256="a" * 64,
    writer=WRITER,
    created_at="2026-01-01T00:00:00.000000Z",
    transactions=2,
    last_commit=LandedCommit(Lsn(30), Xid(7), 1_700_000_000_123_456),
    first_commit_us=-1,
    last_commit_us=1_700_000_000_123_456,
    schemas=(SchemaEntry(version(), Lsn(32), 0),),
    files=(
        SegmentFile(
            path=f"data/{1:020d}-{WRITER}-0000.parquet",
            oid=Oid(16384),
            schema_id=version().id,
            table=TableName("public", "order lines"),
            rows=4,
            bytes=1234,
            sha256="b" * 64,
            sum=(1 << 60) - 1,
            refused=1,
            decoded=Decoded(999, 400),
            counts=ChangeCounts(inserts=1, updates=1, deletes=1, befores=1),
        ),
    ),
)
CATALOG = Manifest(
    kind=ManifestKind.CATALOG,
    number=2,
    incarnation=Incarnation(1),
    first_ordinal=(2 << 33) + 4,
    start_lsn=Lsn.parse("1/20"),
    end_lsn=Lsn.parse("1/20"),
    previous_sha256="a" * 64,
    writer=WRITER,
    created_at="2026-01-01T00:00:00.000000Z",
    catalog_lsn=Lsn.parse("1/30"),
    catalog=CatalogRecord(
        lower_lsn=Lsn.parse("1/10"),
        upper_lsn=Lsn.parse("1/30"),
        path=f"catalog/{2:020d}-{WRITER}.json",
        bytes=9,
        sha256="c" * 64,
        changes=(
            TableDifferences(
                Oid(16384),
                TableName("public", "order lines"),
                (Difference.RENAMED, Difference.COLUMN_ADDED),
                "0" * 16,
                "1" * 16,
                TableName("public", "lines"),
                (AddedColumn("w", 3, "{7}"),),
            ),
            TableDifferences(Oid(16385), TableName("public", "gone"), (Difference.DROPPED,), "0" * 16, None),
            TableDifferences(
                Oid(16386),
                TableName("public", "made"),
                (Difference.CREATED,),
                None,
                "1" * 16,
                created=TableCreated(MADE, named=True, anchored=(1,), numbered=False),
            ),
            TableDifferences(
                Oid(16387), TableName("public", "empty"), (Difference.REWRITTEN,), "0" * 16, "1" * 16, empty=MADE
            ),
        ),
        rules={"s17": 1 << 40, "a16": 7},
    ),
)

MESSAGES = replace(SEGMENT, logical_messages=(LogicalMessageFile("m/x.parquet", 3, 4, "c" * 64),), catalog_lsn=Lsn(9))
START = ChainStart(
    Incarnation(2), 7, Lsn(77), "a" * 64, 1 << 40, "2026", 3, {TableName("public", "order lines"): Lsn(70)}, Lsn(60)
)
BEGIN = IncarnationRecord(
    Incarnation(2), "sys", "db", 5, "slot", "pub", True, Follows(Incarnation(1), None, "Grüße", 1 << 40), "t"
)
TIMELINE = TimelineDoc(2, (Switch(1, Lsn(9)),), Lsn(500), "NOW")
STUCK = Stuck("lakeproof_shop", Lsn(500), "could not find pg_class entry for 16521 (SQLSTATE XX000)", "NOW", False)
LANDING_DOCUMENTS = {
    "manifest_head": HEAD_MANIFEST.to_bytes(),
    "manifest_segment": MESSAGES.to_bytes(),
    "manifest_catalog": CATALOG.to_bytes(),
    "chain_start": START.to_bytes(),
    "incarnation_record": BEGIN.to_bytes(),
    "timeline": TIMELINE.to_bytes(),
    "stuck": STUCK.to_bytes(),
}
