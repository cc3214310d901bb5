"""The source's side of a proof, read over a connection within the slot's snapshot.

The SQL belongs to `lakeproof.proof.source_form`; making and guarding the snapshot to `lakeproof.postgres.copy_snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakeproof.postgres.catalog_tables import PublishedTable
from lakeproof.postgres.connection import Connection, source_errors
from lakeproof.postgres.sent_rows import sent_rows
from lakeproof.proof.compare import Bucket, Buckets, ProofRow
from lakeproof.proof.source_form import ComparedRelation, buckets_query, rows_query

ROWS_AT_ONCE = 10_000


def relation_of(conn: Connection, table: PublishedTable) -> ComparedRelation:
    """Return the rows of a published table that a snapshot of it has."""
    return ComparedRelation(
        version=table.version,
        rows=sent_rows(table),
        row_filter=table.row_filter,
        encoding=conn.info.parameter_status("server_encoding") or "UTF8",
    )


def source_buckets(conn: Connection, table: PublishedTable, buckets: int) -> Buckets:
    """Return the count of rows and the sum of their hashes in each bucket that has rows. Raises as `source_errors`."""
    with source_errors(f"table {table.table}"):
        rows = conn.execute(buckets_query(relation_of(conn, table), buckets), prepare=False).fetchall()
    return {int(bucket): Bucket(rows=int(count), total=int(total)) for bucket, count, total in rows}


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
