"""Messages of a real server: our reading of the protocol and of every value, against PostgreSQL itself."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.pq import abc
from psycopg.sql import SQL, Identifier

from demo.server import EmbeddedPostgres
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.pgoutput.batch import Batch, BatchDecoder, TableBatch
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import LogicalMessage, Origin, Relation, TypeName
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.postgres.catalog.published import read_types
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.values.catalog_kinds import make_column
from lakeproof.values.pinned_settings import PINNED_SETTINGS
from tests.core.pgoutput.pgoutput_reference import assemble
from tests.core.pgoutput.pgoutput_same import assert_same
from tests.support.servers.fix_postgres import MakeServer

pytestmark = pytest.mark.postgres

SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'größer')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE DOMAIN label AS text",
    (
        "CREATE TABLE typed (id int PRIMARY KEY, bool_ boolean, int2_ smallint, int4_ integer, int8_ bigint, float4_ real, "
        "float8_ double precision, numeric_ numeric(12,3), text_ text, bpchar_ char(6), varchar_ varchar(9), name_ name, "
        "uuid_ uuid, bytea_ bytea, date_ date, timestamp_ timestamp, timestamptz_ timestamptz, mood_ mood, price_ price, "
        "label_ label, list_ int[], moods_ mood[], labels_ label[])"
    ),
    (
        "CREATE TABLE others (id int PRIMARY KEY, bare numeric, wide numeric(60,5), doc jsonb, list jsonb[], clock time, "
        'span interval, net inet, bits bit(3), pair pair, cash money, one "char", reg regclass, range int4range)'
    ),
    "CREATE TABLE keyed (a int, b text, c text, PRIMARY KEY (a, b)); ALTER TABLE keyed ALTER c SET STORAGE EXTERNAL",
    'CREATE TABLE "Full" (a int, b text); ALTER TABLE "Full" REPLICA IDENTITY FULL, ALTER b SET STORAGE EXTERNAL',
    "CREATE TABLE nothing ()",
    "CREATE TABLE further (a int PRIMARY KEY)",
    "CREATE PUBLICATION p FOR ALL TABLES",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
)
ORDINARY = (
    (
        "INSERT INTO typed VALUES (0, true, -32768, 2147483647, -9223372036854775807, 0.1, '-0', 1.5, '', 'a', 'b ', 'n', "
        "'12345678-9abc-def0-1234-56789abcdef0', '\\x00ff5c', '1582-10-10', '0001-01-01 00:00:00.000001', "
        "'9999-12-31 23:59:59.999999+00', 'größer', 1.1, '🜁', '{1,NULL}', '{sad}', '{\"a b\",NULL,\"NULL\"}')"
    ),
    (
        "INSERT INTO typed VALUES (1, false, 0, 0, 0, 'NaN', 5e-324, -0.001, E'a\\n\\t\\\\', ' a ', '', 'x', NULL, '', "
        "'9999-12-31', '2024-02-29 12:00:00', '2024-07-01 12:00:00+05:30', 'sad', 0, NULL, '{}', NULL, '{\"\"}')"
    ),
    "INSERT INTO typed VALUES (2)",
)
FAR = (
    "INSERT INTO typed (id, numeric_, price_, date_, timestamp_, timestamptz_) VALUES (100, 'NaN', 'NaN', 'infinity', "
    "'0044-03-15 12:00:00 BC', '294276-12-31 23:59:59+00')"
)


@pytest.fixture(scope="module")
def server(make_server: MakeServer) -> Iterator[EmbeddedPostgres]:
    """A server with the tables above and a slot."""
    with make_server() as postgres:
        _execute(postgres, *SETUP)
        yield postgres


def test_every_kind_of_value_is_what_the_server_has(server: EmbeddedPostgres) -> None:
    """Typed columns against psycopg's own parsers of the binary format, others against the server's text."""
    others = (
        "INSERT INTO others VALUES (1, 1.50, 12.3, '{\"a\": 1}', '{1,NULL}', '24:00', '1 day -2:00', '::1/64', B'101', "
        "ROW(1,'x y'), 12.5, 'q', 'typed', '[1,5)')"
    )
    batch = _decoded(server, *ORDINARY, others)
    typed, other = _table(batch, "typed"), _table(batch, "others")
    actual = [tuple(row[f"c{i}"] for i in range(23)) for row in typed.rows.to_pylist()]
    with psycopg.connect(server.dsn(), options="-c TimeZone=UTC") as conn:
        # psycopg knows no enum that is not registered.
        names = [
            SQL({"enum": "{}::text", "enum[]": "{}::text[]", "text[]": "{}::text[]"}.get(c.kind, "{}")).format(
                Identifier(c.name)
            )
            for c in typed.version.columns
        ]
        query = SQL("SELECT {} FROM typed ORDER BY id").format(SQL(", ").join(names))
        expected = conn.cursor(binary=True).execute(query).fetchall()
        outputs = SQL(", ").join(SQL("format('%s', {})").format(Identifier(c.name)) for c in other.version.columns)
        [text] = conn.execute(SQL("SELECT {} FROM others").format(outputs)).fetchall()
    for ours, theirs in zip(actual, expected, strict=True):
        assert list(map(_comparable, ours)) == list(map(_comparable, theirs))
    assert [c.kind for c in typed.version.columns[17:]] == ["enum", "numeric", "text", "int4[]", "enum[]", "text[]"]
    assert {c.kind for c in other.version.columns[1:]} == {"exact_text"}
    given = other.rows.to_pylist()[0]
    # A regclass is printed with its schema, since nothing is on the pinned search path.
    printed = ["public.typed" if value == "typed" else value for value in text]
    assert [given[f"c{i}"] if i else "1" for i in range(len(text))] == printed


def test_what_does_not_fit_has_the_servers_text_in_the_hidden_column(server: EmbeddedPostgres) -> None:
    """NaN, infinity, BC and far years, by attribute number."""
    [row] = _table(_decoded(server, FAR), "typed").rows.to_pylist()
    expected = '{"8":"NaN","15":"infinity","16":"0044-03-15 12:00:00 BC","17":"294276-12-31 23:59:59+00","19":"NaN"}'
    assert row["_lp_text"] == expected
    assert [row[f"c{i}"] for i in (7, 14, 15, 16, 18)] == [None] * 5


def test_updates_bring_what_the_identity_says(server: EmbeddedPostgres) -> None:
    """Key moves with unchanged TOAST, whole old rows, deletes; a rolled-back savepoint leaves nothing."""
    batch = _decoded(
        server,
        "INSERT INTO keyed VALUES (1, 'x', repeat('y', 9000)), (2, 'x', 'small')",
        "UPDATE keyed SET b = 'z' WHERE a = 1",
        "UPDATE keyed SET a = 2 + a WHERE a = 2; DELETE FROM keyed WHERE a = 4",
        'INSERT INTO "Full" VALUES (1, repeat(\'w\', 9000)); UPDATE "Full" SET a = 2; DELETE FROM "Full"',
        "UPDATE keyed SET c = c",
        "BEGIN; SAVEPOINT a; INSERT INTO keyed VALUES (9, '', ''); ROLLBACK TO a; "
        "INSERT INTO keyed VALUES (8, '', ''); COMMIT",
    )
    wide, huge = "y" * 9000, "w" * 9000
    assert _values(_table(batch, "keyed"), "_lp_op", "_lp_unchanged", "c0", "c1", "c2") == [
        ("insert", None, 1, "x", wide),
        ("insert", None, 2, "x", "small"),
        ("before", None, 1, "x", None),
        ("update", [2], 1, "z", None),
        ("before", None, 2, "x", None),
        ("update", None, 4, "x", "small"),
        ("delete", None, 4, "x", None),
        ("update", [2], 1, "z", None),
        ("insert", None, 8, "", ""),
    ]
    assert _values(_table(batch, "Full"), "_lp_op", "_lp_seq", "_lp_unchanged", "c0", "c1") == [
        ("insert", 0, None, 1, huge),
        ("before", 1, None, 1, huge),
        ("update", 1, None, 2, huge),
        ("delete", 2, None, 2, huge),
    ]


def test_truncates_schemas_and_messages_keep_their_places(server: EmbeddedPostgres) -> None:
    """A transaction with a TRUNCATE of three tables, a column added in the middle, and a logical message."""
    batch = _decoded(
        server,
        'BEGIN; INSERT INTO further VALUES (1); INSERT INTO "Full" VALUES (5, \'a\'); ALTER TABLE "Full" ADD d date; '
        "SELECT pg_logical_emit_message(true, 'note', 'x'); INSERT INTO \"Full\" VALUES (6, 'b', '2024-01-01'); "
        'TRUNCATE further, "Full", keyed; INSERT INTO nothing DEFAULT VALUES; COMMIT',
    )
    assert [
        (t.version.table.name, len(t.version.columns)) for t in batch.changes if t.version.table.name == "Full"
    ] == [
        ("Full", 2),
        ("Full", 3),
    ]
    rows = [(t.version.table.name, row) for t in batch.changes for row in t.rows.to_pylist()]
    places = sorted((row["_lp_ord"], row["_lp_seq"], row["_lp_op"]) for _, row in rows)
    truncates = [seq for _, seq, operation in places if operation == "truncate"]
    assert [row for row, _, _ in places] == list(range(7))
    assert truncates == [3, 4, 5]
    assert places[-1][1:] == (6, "insert")
    assert [
        (n.message.prefix, n.message.content, n.seq)
        for n in batch.logical_messages
        if isinstance(n.message, LogicalMessage)
    ] == [("note", b"x", 2)]
    # The others' schemas come again too: the server repeats them after a TRUNCATE's invalidation at the latest.
    assert [s.from_seq for s in batch.schemas if s.version.table.name == "Full"] == [1, 2]
    with psycopg.connect(server.dsn()) as conn:
        assert conn.execute("SELECT xmin::text::bigint FROM nothing").fetchone() == (rows[0][1]["_lp_xid"],)


def _values(table: TableBatch, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in table.rows.to_pylist()]


def _table(batch: Batch, name: str) -> TableBatch:
    [actual] = [table for table in batch.changes if table.version.table.name == name]
    return actual


def _comparable(value: object) -> str:
    return (
        repr(str(value) if type(value).__name__ == "UUID" else value)
        .replace("zoneinfo.ZoneInfo(key='UTC')", "UTC")
        .replace("datetime.timezone.utc", "UTC")
    )


def _execute(server: EmbeddedPostgres, *statements: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def _decoded(server: EmbeddedPostgres, *statements: str) -> Batch:
    """Run the statements, each a transaction, and decode what the slot sends for them, on both roads."""
    _execute(server, *statements)
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        frames = _stream(server, conn)
        relations = [m for m in (decode(frame[25:]) for frame in frames) if isinstance(m, Relation | TypeName | Origin)]
        catalog = _Catalog(conn)
        assert any(isinstance(message, Relation) for message in relations)
        batch = BatchDecoder(RelationCache(catalog.resolve)).decode(MessageBuffer.of(frames))
        assert_same(batch, assemble(frames, RelationCache(catalog.resolve)))
    return batch


def _stream(server: EmbeddedPostgres, conn: psycopg.Connection[Any]) -> list[bytes]:
    """All frames of the slot up to the end of WAL as it is now; the slot is moved there."""
    [(end,)] = conn.execute("SELECT pg_current_wal_lsn()::text").fetchall()
    options = " ".join(
        f"-c {name}={value or chr(34) * 2}" for name, value in PINNED_SETTINGS.items() if name != "client_encoding"
    )
    pgconn = pq.PGconn.connect(f"{server.dsn()} replication=database client_encoding=UTF8 options='{options}'".encode())
    assert pgconn.status == pq.ConnStatus.OK, pgconn.error_message
    pgconn.send_query(
        b"START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p', messages 'true')"
    )
    result = pgconn.get_result()
    assert result is not None
    assert result.status == pq.ExecStatus.COPY_BOTH, result.error_message
    frames = _read_to(pgconn, Lsn.parse(end).value)
    pgconn.finish()
    _advance(conn, end)
    return frames


def _advance(conn: psycopg.Connection[Any], end: str) -> None:
    """Move the slot, once the server has noticed that the stream's connection is gone."""
    deadline = time.monotonic() + 90
    while conn.execute("SELECT active FROM pg_replication_slots").fetchone() != (False,):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    conn.execute("SELECT pg_replication_slot_advance('s', %s::pg_lsn)", (end,))


def _read_to(pgconn: abc.PGconn, end: int) -> list[bytes]:
    frames: list[bytes] = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        size, data = pgconn.get_copy_data(1)
        if size == 0:
            select.select([pgconn.socket], [], [], 0.2)
            pgconn.consume_input()
            continue
        frame = bytes(data)
        if frame[:1] == b"w":
            frames.append(frame)
        elif frame[:1] == b"k" and struct.unpack(">Q", frame[1:9])[0] >= end:
            return frames
    raise AssertionError("the server did not reach the end of its WAL in 90 s")


class _Catalog:
    """A resolver of the tests' own: the catalog's types by OID, attribute numbers by name."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def resolve(self, relation: Relation, *_: object) -> SchemaVersion:
        """Return the version of a table as it is now."""
        types = read_types(self._conn, {int(c.type_oid) for c in relation.columns})
        attnums = dict(
            self._conn.execute(
                "SELECT attname, attnum FROM pg_attribute WHERE attrelid = %s", (relation.oid,)
            ).fetchall()
        )
        columns = tuple(
            make_column(c.name, types[int(c.type_oid)], c.typmod, attnum=attnums[c.name], identity=c.identity)
            for c in relation.columns
        )
        key = tuple(c.name for c in columns if c.identity and relation.identity is not Identity.FULL)
        return SchemaVersion(
            TableName(relation.namespace, relation.name), relation.oid, relation.identity, columns, key
        )
