"""One document of each kind that a lake has, with every field set.

The bytes that each must have are in `golden/`; `test_lake_formats.py` compares them.
"""

from __future__ import annotations

from dataclasses import replace

from lakeproof.lake.records.ages import Ages, Mark
from lakeproof.lake.records.cuts.documents import BaseDoc, Contents, CutBase, CutDoc, TableSchemaDoc
from lakeproof.lake.records.cuts.groups import GroupCut, GroupMember
from lakeproof.lake.records.days import DayEntry, Days
from lakeproof.lake.records.documents import (
    Copy,
    Cut,
    CutOrdinals,
    CutTable,
    CycleKind,
    HistorySum,
    Intent,
    SegmentOrdinal,
    TableIntent,
)
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewCut, ViewVersion
from lakeproof.lake.records.views.definitions import ReadExternal, ReadTable, ViewDefinition, ViewPreview
from lakeproof.landing.segments.manifest import Decoded
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.proof.record import Basis, Compared, LakeProved, ProofRecord, Proved
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.copy.keyed_copy import KeyedCopy, KeyedTable
from lakeproof.snapshot.folder import SnapshotEnd, SnapshotRequest
from lakeproof.snapshot.incarnation import SourceDoc
from lakeproof.snapshot.paused import Paused, PausedEntry, PausedTable
from lakeproof.snapshot.state import SnapshotDoc, SnapshotFile, SnapshotTable

TABLE = TableName("public", "order lines")
VERSION = SchemaVersion(
    TABLE, Oid(16384), Identity.DEFAULT, (Column("id", Oid(23), -1, "int4", "int4", 1, identity=True),), ("id",)
)
HELD = {
    TableName("s", "t"): Held(
        Lsn(5),
        HeldCause.SCHEMA_CHANGE,
        WayOut.SNAPSHOT,
        {"change": "its schema changed", "why_not_in_place": "the table was recreated"},
    )
}
SOURCE = SourceDoc("shop", "7300000000000000001", "app", 16384, "2026-01-01T00:00:00Z")
CHUNK = SnapshotFile("x/0.parquet", 3, 99, "0" * 64, (1 << 60) - 1, Decoded(999, 400), (0, None), "public.order lines")
SNAPSHOT = SnapshotDoc(
    Incarnation(1), Lsn(4096), "a", "b", "slot",
    {TABLE: SnapshotTable(VERSION, 3, (CHUNK,), None, {16384: 16390})},
)  # fmt: skip
INTENT = Intent(
    number=CycleNumber(2),
    kind=CycleKind.APPLY,
    incarnation=Incarnation(1),
    start_lsn=Lsn(4096),
    end_lsn=Lsn(1 << 40),
    segments=(SegmentOrdinal(7, 2 << 36),),
    own_ordinal=3 << 36,
    ordinals=CutOrdinals(2 << 36, 3 << 36),
    tables={TABLE: TableIntent(Lsn(4096), VERSION.id, Copy("shop/snapshots/000001/0000000000001000"))},
    held=HELD,
    epoch=3,
    writer="0" * 32,
    created_at="2026-01-01T00:00:00Z",
)
SUM = HistorySum(3, 0xABC)
CUT = Cut(
    number=CycleNumber(2),
    kind=CycleKind.APPLY,
    incarnation=Incarnation(1),
    position=Lsn(1 << 40),
    commit_time=None,
    tables={TABLE: CutTable(Lsn(1 << 40), Lsn(4096), 0, 12, VERSION, Incarnation(1), Incarnation(2), None, 400, SUM)},
    next_segment=8,
    intent_sha256="0" * 64,
    created_at="2026-01-01T00:00:00Z",
    held=HELD,
    ordinals=CutOrdinals(2 << 36, 3 << 36),
)
CONTENTS = (Contents.of(CUT).tables, Contents.of(CUT).held)
CUT_DOC = CutDoc(
    CUT.number, CUT.kind, CUT.incarnation, CUT.position, CUT.ordinals, CUT.commit_time, CutBase(CycleNumber(1), "1" * 64), 7,
    *CONTENTS, CUT.next_segment, CUT.intent_sha256, CUT.created_at,
)  # fmt: skip
REQUEST = SnapshotRequest(
    Incarnation(1), Lsn(4096), "slot", "2026-01-01T00:00:00.000000Z", (TABLE, TableName("s", "t"))
)
KEYED_COPY = KeyedCopy(
    Incarnation(1), Lsn(4096), "2026-01-01T00:00:00Z",
    {TABLE: KeyedTable(SnapshotTable(VERSION, 3, (CHUNK,)), SnapshotTable(VERSION, 3, (CHUNK,)))},
)  # fmt: skip
END = SnapshotEnd(
    Lsn(4096),
    "2026-01-01T00:00:00.000000Z",
    {TABLE: "its column has a bad text"},
    (TableName("s", "t"),),
    (TableName("shop", "gone"),),
    "it was stopped",
)


VIEW_CUT = ViewCut(
    number=CycleNumber(3),
    view="revenue",
    delta_version=2,
    definition_sha256="0" * 64,
    sources={"shop": CycleNumber(7)},
    inserted=4,
    retracted=1,
    created_at="2026-01-01T00:00:00Z",
    refresh=2,
    strategy="keys",
    reason=None,
    changed_rows=9,
    rows_read=20,
    whole_at="2025-12-31T00:00:00Z",
    engine={"spark": "4.2.0"},
    replaced_sha256="1" * 64,
    views={"totals": ViewVersion(4, "0c1d", 16)},
    external={"/data/rates": ExternalVersion("/data/rates", "1e2f", 9)},
    row_bytes=24,
)
VIEW_DEFINITION = ViewDefinition(
    "revenue",
    "SELECT 1",
    {"orders": ReadTable("shop", TABLE)},
    {"totals": "order_totals"},
    {"rates": ReadExternal("delta", "/data/rates")},
)
VIEW_PREVIEW = ViewPreview(
    id="20260101T000000000000-3f2a9c",
    view="revenue",
    definition_sha256="1" * 64,
    cut=CycleNumber(3),
    delta_version=2,
    sources={"shop": CycleNumber(7)},
    inserted=4,
    retracted=1,
    rewritten=9,
    added={"currency": "string"},
    dropped={"note": "string"},
    retyped={"sum": "int → bigint"},
    staged=(9, 0),
    engine={"spark": "4.2.0"},
    views={"totals": ViewVersion(4, "0c1d", 16)},
    external={"/data/rates": ExternalVersion("/data/rates", "1e2f", 9)},
    created_at="2026-01-01T00:00:00Z",
)
GROUP_CUT = GroupCut(
    number=3,
    group="shop",
    position=Lsn(1 << 40),
    commit_time="2026-01-01T00:00:00.000000Z",
    system_id="7300000000000000001",
    timeline=1,
    database_oid=16384,
    sources={"one": GroupMember(CycleNumber(7), Incarnation(1), {TABLE: Lsn(5)})},
    created_at="2026-01-01T00:00:00Z",
)
_COMPARED = Compared(Incarnation(1), Lsn(3), "2026-01-01T00:00:00.000000Z")
PROVED = ProofRecord(
    {
        TABLE: Proved(
            "equal",
            "2026-01-01T00:00:00.000000Z",
            5,
            _COMPARED,
            None,
            LakeProved(
                "equal",
                "2026-01-01T00:00:00.000000Z",
                3,
                {"shop": Lsn(7)},
                None,
                "2026-01-01T00:00:00.000000Z",
                9,
                "process 7 on h",
            ),
            ("a", "b"),
            _COMPARED,
            "process 7 on h",
            replace(_COMPARED, kind="changed"),
            Basis(7, "a" * 64, 9, "b" * 64, "0" * 16, "c" * 64),
        ),
        TableName("a", "b"): Proved("blocked", "", None, None, "why"),
    },
    {"v": LakeProved("equal", "2026-01-01T00:00:00.000000Z")},
)
AGES = Ages((Mark("2026-01-01T00:00:00.000000Z", 0), Mark("2026-01-02T00:00:00.000000Z", 8589934592)))
DAYS = Days({"2026-01-01": DayEntry(Lsn(4096), 3, "0" * 64, True, "2026-01-02T00:00:00Z")})
PAUSED = Paused({TABLE: PausedTable("t", (PausedEntry("pub", "(id > 5)", ("id", "v")),), resuming=True)})
DOCUMENTS = {
    "source": SOURCE.to_bytes(),
    "snapshot": SNAPSHOT.to_bytes(),
    "snapshotend": END.to_bytes(),
    "snapshotrequest": REQUEST.to_bytes(),
    "keyedcopy": KEYED_COPY.to_bytes(),
    "intent": INTENT.to_bytes(),
    "cut": CUT_DOC.to_bytes(),
    "cutbase": BaseDoc(CUT_DOC.number, CUT_DOC.tables, CUT_DOC.held).to_bytes(),
    "schema": TableSchemaDoc(VERSION).to_bytes(),
    "viewcut": VIEW_CUT.to_bytes(),
    "viewdefinition": VIEW_DEFINITION.to_bytes(),
    "viewpreview": VIEW_PREVIEW.to_bytes(),
    "groupcut": GROUP_CUT.to_bytes(),
    "proved": PROVED.to_bytes(),
    "ages": AGES.to_bytes(),
    "days": DAYS.to_bytes(),
    "paused": PAUSED.to_bytes(),
}
