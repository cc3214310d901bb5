"""History's rows: a table's changes as after-images, a snapshot's rows, and corrections.

What the changes add up to belongs to `net_change`; where an unchanged value is to `holders`; committing to `apply`.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import COMMIT_TIME, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, XID
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
# One file per this many rows: a cycle that changes little makes one file, not one per task.
ROWS_PER_FILE = 500_000


def change_rows(shape: SchemaVersion, events: DataFrame) -> DataFrame:
    """History's rows of events with `_lp_key` and `_lp_from`."""
    if keeps_key(shape):
        no_row = F.col(OP) == "truncate"
        events = events.withColumn(KEY, F.when(~no_row, F.col(KEY)))
    return pick(events, history_columns(shape))


def state_rows(shape: SchemaVersion, rows: DataFrame, op: str, at: Lsn) -> DataFrame:
    """History's rows of whole rows (current's columns and `_lp_ord`) that a snapshot or correction brought at `at`.

    They hold their values themselves, wherever those came from.
    """
    unknown = F.lit(None)
    added = {
        FROM: unknown.cast("string"),
        SEQ: unknown.cast("bigint"),
        XID: unknown.cast("bigint"),
        COMMIT_TIME: unknown.cast("timestamp"),
    }
    if not keeps_key(shape):
        added[KEY] = unknown.cast("string")
    rows = rows.withColumns({**added, LSN: F.lit(int(at)).cast("bigint"), OP: F.lit(op)})
    return pick(rows, history_columns(shape))


def gap_row(
    session: SparkSession,
    shape: SchemaVersion,
    ordinal: int,
    since: tuple[Incarnation, Lsn],
    to: tuple[Incarnation, Lsn],
) -> DataFrame:
    """One history row without values: of what happened between two positions, of two incarnations, nothing is known."""
    told = json.dumps({"from": f"{since[0]}:{since[1]}", "to": f"{to[0]}:{to[1]}"})
    return _row_of_no_values(session, shape, ordinal, to[1], GAP, told)


def reset_row(session: SparkSession, shape: SchemaVersion, ordinal: int, at: Lsn) -> DataFrame:
    """One history row without values: what stood before could not be read, and is void; the table's rows at `at` follow."""
    return _row_of_no_values(session, shape, ordinal, at, RESET, None)


def _row_of_no_values(  # noqa: PLR0917  the row's columns
    session: SparkSession, shape: SchemaVersion, ordinal: int, at: Lsn, op: str, text: str | None
) -> DataFrame:
    unknown = F.lit(None)
    columns = {c.name: unknown.cast(spark_type(c)) for c in shape.columns}
    columns |= {ORD: F.lit(ordinal).cast("bigint"), LSN: F.lit(int(at)).cast("bigint"), OP: F.lit(op)}
    columns |= {SEQ: unknown.cast("bigint"), XID: unknown.cast("bigint"), COMMIT_TIME: unknown.cast("timestamp")}
    columns |= {TEXT: F.lit(text).cast("string"), KEY: unknown.cast("string"), FROM: unknown.cast("string")}
    return session.range(1).select(*(columns[name].alias(name) for name in history_columns(shape)))


def few_files(rows: DataFrame, count: int) -> DataFrame:
    """The rows in as few files as `count` rows need."""
    return rows.coalesce(1 + count // ROWS_PER_FILE)
