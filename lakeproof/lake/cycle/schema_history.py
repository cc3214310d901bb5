"""What became of tables' shapes, told: a row per change in the Delta table `schema_history`, each shape as a document.

Changing a shape belongs to `reshape`; the fields are in FORMAT.md. Nothing here is read to decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import LakeError
from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.apply import append
from lakeproof.lake.delta.commit import CommitInfo, TableSpec
from lakeproof.lake.delta.unnamed_commits import named_through, settle
from lakeproof.lake.planning.schema_change import describe_change
from lakeproof.lake.records.documents import Cut, CutTable, Held, Intent
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.spark.failures import raise_unless_about_the_data, reason_of
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document_fields import write_document
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, Store
from lakeproof.values.types import spark_type

SCHEMA_FORMAT = "lakeproof.schema/1"
HELD = "held"
_COLUMNS = (
    "cycle bigint, incarnation int, position string, created_at string, table string, detail string, done string,"
    " schema_id string"
)


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """A table that a cycle gave another shape: what differs, and how it was done (`in place`, `for a snapshot`).

    Or one that is `held` from this cycle on: why the change was not applied.
    """

    table: TableName
    detail: str
    done: str
    schema_id: str


def shape_changes(intent: Intent, previous: Cut | None) -> list[ShapeChange]:
    """What a cycle of kind `schema` does, and what any cycle begins to hold for a change; in the order of the names."""
    before: Mapping[TableName, CutTable] = {} if previous is None else previous.tables
    done = [
        ShapeChange(
            table,
            describe_change(before[table].version, wanted.reshape.version),
            "for a snapshot" if table in intent.held else "in place",
            wanted.schema_id,
        )
        for table, wanted in sorted(intent.tables.items())
        if wanted.reshape is not None
    ]
    return sorted([*done, *_not_applied(intent, previous, {c.table for c in done})], key=lambda c: c.table)


def _not_applied(intent: Intent, previous: Cut | None, done: set[TableName]) -> list[ShapeChange]:
    """What the plan has put into `held`: what rows are refused for while they are written comes into the cut alone."""
    if previous is None or previous.incarnation != intent.incarnation:
        # In a crossing every table is held until its snapshot is there: no table has changed.
        return []
    return [
        ShapeChange(table, held.reason, HELD, previous.tables[table].version.id)
        for table, held in intent.held.items()
        if table in previous.tables and table not in done and _is_new(held, previous.held.get(table))
    ]


def _is_new(held: Held, before: Held | None) -> bool:
    return before is None or before.reason != held.reason


def record_changes(session: SparkSession, lease: Lease, intent: Intent, changes: Iterable[ShapeChange]) -> str | None:
    """Append the cycle's rows to `schema_history`, after taking out those of cycles that have not ended.

    Nobody decides by it: what is wrong with that table ends no cycle, but is given as the reason why nothing was appended.
    """
    try:
        _record(session, lease, intent, changes)
    except (LakeError, PySparkException, Py4JError, OSError) as error:
        raise_unless_about_the_data(session, error)
        return reason_of(error)
    return None


def _record(session: SparkSession, lease: Lease, intent: Intent, changes: Iterable[ShapeChange]) -> None:
    paths = lease.paths
    path, app = paths.url(paths.schema_history), _app_id(paths)
    lease.check()
    settle(session, path, recorded_before(paths, intent), lambda commit: app in commit.txns)
    told = [
        (
            int(intent.number), int(intent.incarnation), str(intent.end_lsn), intent.created_at,
            str(c.table), c.detail, c.done, c.schema_id,
        )
        for c in changes
    ]  # fmt: skip
    if told:
        rows = session.createDataFrame(told, _COLUMNS).coalesce(1)
        append(session, path, rows, CommitInfo(app, intent.number, "{}"), create=TableSpec())


def recorded_before(paths: LakePaths, intent: Intent) -> int:
    """The version of `schema_history` that the cycles before this one have left: no cut names it, a commit has its cycle."""
    app = _app_id(paths)
    return named_through(
        paths.url(paths.schema_history), lambda commit: commit.txns.get(app, intent.number) < intent.number
    )


def _app_id(paths: LakePaths) -> str:
    return f"lakeproof/{paths.source}/schema_history"


def publish_schemas(store: Store, paths: LakePaths, intent: Intent, previous: Cut | None, cut: Cut) -> None:
    """Put each shape that this cut is the first to have: at a table's start, and at every change."""
    before = {} if previous is None else {t: at.version.id for t, at in previous.tables.items()}
    for table, at in cut.tables.items():
        if before.get(table) != at.version.id:
            try:
                store.put_if_absent(paths.schema(table, cut.number), _document(intent, at.version))
            except AlreadyExistsError:
                continue


def _document(intent: Intent, version: SchemaVersion) -> bytes:
    lake = in_lake(version)
    columns: list[dict[str, Any]] = [
        {"name": c.name, "column": named.name, "postgres": c.type_name, "spark": spark_type(c), "attnum": c.attnum}
        for c, named in zip(version.columns, lake.columns, strict=True)
    ]
    return write_document(
        SCHEMA_FORMAT,
        table=version.table.key,
        cycle=int(intent.number),
        incarnation=int(intent.incarnation),
        position=str(intent.end_lsn),
        schema_id=version.id,
        columns=columns,
        key=list(lake.key),
    )
