"""History's rows: a table's changes as after-images, a snapshot's rows, and corrections.

Adding changes up belongs to `net_change`, finding the holders of unchanged values to `unchanged_values`, committing to
`delta.apply`.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, XID
from lakeproof.lake.columns import history_columns, keeps_key
from lakeproof.lake.rows.columns import pick
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.schema import SchemaVersion
from lakeproof.values.types import spark_type

SNAPSHOT = "snapshot"
GAP = "gap"
RESET = "reset"
CORRECT_DELETE = "correct_delete"
CORRECT_INSERT = "correct_insert"
# One file per this many rows: a cycle that changes little writes one file, not one per task.
ROWS_PER_FILE = 500_000


def change_rows(schema: SchemaVersion, events: DataFrame) -> DataFrame:
    """Return history's rows of events with `_lp_key` and `_lp_from`."""
    if keeps_key(schema):
        no_row = F.col(OP) == "truncate"
        events = events.withColumn(KEY, F.when(~no_row, F.col(KEY)))
    return pick(events, history_columns(schema))


def state_rows(schema: SchemaVersion, rows: DataFrame, op: str, lsn: Lsn) -> DataFrame:
    """Return history's rows of whole rows (current's columns and `_lp_ord`) that a snapshot or correction wrote at `lsn`.

    They hold all their values themselves.
    """
    unknown = F.lit(None)
    added = {
        FROM: unknown.cast("string"),
        SEQ: unknown.cast("bigint"),
        XID: unknown.cast("bigint"),
        COMMIT_TIME: unknown.cast("timestamp"),
        COMMIT_NUMBER: unknown.cast("bigint"),
    }
    if not keeps_key(schema):
        added[KEY] = unknown.cast("string")
    rows = rows.withColumns({**added, LSN: F.lit(int(lsn)).cast("bigint"), OP: F.lit(op)})
    return pick(rows, history_columns(schema))


def gap_row(
    session: SparkSession,
    schema: SchemaVersion,
    ordinal: int,
    since: tuple[Incarnation, Lsn],
    to: tuple[Incarnation, Lsn],
) -> DataFrame:
    """Return one history row without values: nothing is known between two positions, of two incarnations."""
    positions = json.dumps({"from": f"{since[0]}:{since[1]}", "to": f"{to[0]}:{to[1]}"})
    return _row_of_no_values(session, schema, ordinal, to[1], GAP, positions)


def reset_row(session: SparkSession, schema: SchemaVersion, ordinal: int, lsn: Lsn) -> DataFrame:
    """Return one history row without values: everything before could not be read, and is void; the rows at `lsn` follow."""
    return _row_of_no_values(session, schema, ordinal, lsn, RESET, None)


def _row_of_no_values(  # noqa: PLR0917  the row's columns
    session: SparkSession, schema: SchemaVersion, ordinal: int, lsn: Lsn, op: str, text: str | None
) -> DataFrame:
    unknown = F.lit(None)
    columns = {c.name: unknown.cast(spark_type(c)) for c in schema.columns}
    columns |= {ORD: F.lit(ordinal).cast("bigint"), LSN: F.lit(int(lsn)).cast("bigint"), OP: F.lit(op)}
    columns |= {SEQ: unknown.cast("bigint"), XID: unknown.cast("bigint"), COMMIT_TIME: unknown.cast("timestamp")}
    columns |= {COMMIT_NUMBER: unknown.cast("bigint")}
    columns |= {TEXT: F.lit(text).cast("string"), KEY: unknown.cast("string"), FROM: unknown.cast("string")}
    return session.range(1).select(*(columns[name].alias(name) for name in history_columns(schema)))


def few_files(rows: DataFrame, count: int) -> DataFrame:
    """Write the rows into as few files as `count` rows need."""
    return rows.coalesce(1 + count // ROWS_PER_FILE)
