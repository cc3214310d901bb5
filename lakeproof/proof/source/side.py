"""The source's side of a proof, read over a connection within the slot's snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakeproof.postgres.catalog.tables import PublishedTable, sent_rows
from lakeproof.postgres.connections.connect import Connection, source_errors
from lakeproof.postgres.copying.keys import Key, is_one_of
from lakeproof.proof.compare import Bucket, Buckets, ProofRow
from lakeproof.proof.source.form import ComparedRelation, buckets_of_all_query, keyed_rows_query, rows_query
from lakeproof.values.exact_kinds import key_columns

ROWS_AT_ONCE = 10_000
_READS_HEX = 160_000


def relation_of(conn: Connection, table: PublishedTable) -> ComparedRelation:
    """Return the rows of a published table that a snapshot of it has."""
    return ComparedRelation(
        version=table.version,
        rows=sent_rows(table),
        row_filter=table.row_filter,
        encoding=conn.info.parameter_status("server_encoding") or "UTF8",
        reads_hex=conn.info.server_version >= _READS_HEX,
    )


def source_buckets(conn: Connection, tables: Sequence[tuple[PublishedTable, int]]) -> list[Buckets]:
    """Return each table's buckets that have rows, the count of rows and the sum of their hashes, in its number of buckets.

    All tables are one statement. Raises as `source_errors`.
    """
    thing = f"table {tables[0][0].table}" if len(tables) == 1 else f"{len(tables)} tables"
    query = buckets_of_all_query([(relation_of(conn, table), buckets) for table, buckets in tables])
    result: list[dict[int, Bucket]] = [{} for _ in tables]
    with source_errors(thing):
        for number, bucket, count, total in conn.execute(query, prepare=False).fetchall():
            result[int(number)][int(bucket)] = Bucket(rows=int(count), total=int(total))
    return [*result]


def source_rows(
    conn: Connection, table: PublishedTable, buckets: int, chosen_buckets: Sequence[int]
) -> Iterator[tuple[int, ProofRow]]:
    """Give each row of the `chosen_buckets` with its bucket, in their order: its hash, and the exact texts of its key.

    Iterate inside a transaction; the rows are read a part at a time. Raises as `source_errors`.
    """
    with source_errors(f"table {table.table}"), conn.cursor(name="lp_proof") as cursor:
        cursor.itersize = ROWS_AT_ONCE
        for row in cursor.execute(rows_query(relation_of(conn, table), buckets, chosen_buckets)):
            yield int(row[0]), ProofRow(hash=int(row[1]), key=tuple(row[2:]))


def source_rows_of(conn: Connection, table: PublishedTable, keys: Sequence[Key]) -> list[ProofRow]:
    """Return the rows under some keys, by one statement; also such as PostgreSQL calls equal. Raises as `source_errors`."""
    relation = relation_of(conn, table)
    query = keyed_rows_query(relation, is_one_of(key_columns(table.version), keys))
    with source_errors(f"table {table.table}"):
        return [ProofRow(hash=int(row[0]), key=tuple(row[1:])) for row in conn.execute(query, prepare=False)]
