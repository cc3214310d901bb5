"""Records tables' schema changes: a row per change in the Delta table `schema_history`, each schema as a document.

Changing a schema is in `commits`; the fields are in FORMAT.md. No code reads these records to decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from lakeproof.errors import LakeError
from lakeproof.field_types import CycleField, IncarnationField, LsnField, TableField
from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.link_commit import LinkRequest, NewTable, prepare_links
from lakeproof.lake.delta.log.cleaned import clean_log, named_through
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.planning.schema_change import describe_change
from lakeproof.lake.records.described import read_described
from lakeproof.lake.records.documents import Cut, CutTable, Intent, SchemaChange
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.lease import Lease
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import ColumnDescription, TableDescription
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document import Document, Part
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.values.types import spark_type

HELD = "held"
_TEXTS = ("position", "created_at", "table", "detail", "done", "schema_id")
_COLUMNS = pa.schema({"cycle": pa.int64(), "incarnation": pa.int32()} | dict.fromkeys(_TEXTS, pa.string()))
_TYPES = {"cycle": "bigint", "incarnation": "int"} | dict.fromkeys(_TEXTS, "string")


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A table that a cycle gave another schema: what differs, and how it was done (`in place`, `for a snapshot`).

    Or a table that is `held` from this cycle on: why the change was not applied.
    """

    table: TableName
    detail: str
    done: str
    schema_id: str


@dataclass(frozen=True, slots=True)
class _Column(Part):
    """A column of the source: its name in the lake, and its type on either side.

    `type` is its whole type (`numeric(12,2)`), beside `not_null` and `default`, as the source's catalog was read last; null
    if it was not read yet.
    """

    name: str
    column: str
    postgres: str
    spark: str
    attnum: int
    type: str | None
    not_null: bool | None
    default: str | None


@dataclass(frozen=True, slots=True)
class _SchemaDoc(Document):
    """A table's schema from a cycle on, for people and their tools."""

    FORMAT = "lakeproof.schema/1"

    table: TableField
    cycle: CycleField
    incarnation: IncarnationField
    position: LsnField
    schema_id: str
    columns: tuple[_Column, ...]
    key: tuple[str, ...]


def recorded_changes(intent: Intent, previous: Cut | None) -> list[RecordedChange]:
    """Return what a cycle of kind `schema` changes, and what any cycle begins to hold for a change, ordered by name."""
    before: Mapping[TableName, CutTable] = {} if previous is None else previous.tables
    done = [
        RecordedChange(
            table,
            describe_change(before[table].version, intended.work.version),
            "for a snapshot" if table in intent.held else "in place",
            intended.schema_id,
        )
        for table, intended in sorted(intent.tables.items())
        if isinstance(intended.work, SchemaChange)
    ]
    return sorted([*done, *_not_applied(intent, previous, {c.table for c in done})], key=lambda c: c.table)


def _not_applied(intent: Intent, previous: Cut | None, done: set[TableName]) -> list[RecordedChange]:
    """Return what the plan has put into `held`: tables refused while they are written are in the cut alone."""
    if previous is None or previous.incarnation != intent.incarnation:
        # In a switch every table is held until its snapshot has come: no table has changed.
        return []
    return [
        RecordedChange(table, held.reason, HELD, previous.tables[table].version.id)
        for table, held in intent.held.items()
        if table in previous.tables and table not in done and _is_new(held, previous.held.get(table))
    ]


def _is_new(held: Held, before: Held | None) -> bool:
    return before is None or not held.has_same_reason(before)


def record_changes(lease: Lease, intent: Intent, changes: Iterable[RecordedChange]) -> str | None:
    """Append the cycle's rows to `schema_history`, after taking out those of cycles that have not ended.

    No code decides by it, so a fault of that table ends no cycle; it is returned as the reason why nothing was appended.
    """
    try:
        _record(lease, intent, changes)
    except LakeError as error:
        return f"{error.thing}: {error.reason}"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def _record(lease: Lease, intent: Intent, changes: Iterable[RecordedChange]) -> None:
    lake = lease.lake
    path, app = lake.url(lake.paths.schema_history), _app_id(lake)
    lease.check()
    cleaned = clean_log(path, recorded_before(lake, intent), lambda commit: app in commit.txns, lease.check)
    of_cycle = (int(intent.number), int(intent.incarnation), str(intent.end_lsn), intent.created_at)
    rows_of_changes = [(*of_cycle, str(c.table), c.detail, c.done, c.schema_id) for c in changes]
    if rows_of_changes:
        rows = [dict(zip(_COLUMNS.names, row, strict=True)) for row in rows_of_changes]
        request = LinkRequest(
            path,
            CommitInfo(app, intent.number, "{}"),
            (),
            {},
            cleaned.newest,
            create=NewTable(_TYPES, TableSpec()),
            rows=[pa.Table.from_pylist(rows, _COLUMNS)],
        )
        prepare_links(request).commit()


def recorded_before(lake: SourceLake, intent: Intent) -> int:
    """Return the version of `schema_history` that earlier cycles have left: no cut names it, each commit has its cycle."""
    app = _app_id(lake)
    return named_through(
        lake.url(lake.paths.schema_history), lambda commit: commit.txns.get(app, intent.number) < intent.number
    )


def _app_id(lake: SourceLake) -> str:
    return f"lakeproof/{lake.source}/schema_history"


def publish_schemas(lake: SourceLake, intent: Intent, previous: Cut | None, cut: Cut) -> None:
    """Put each schema that this cut is the first to have: at a table's start, and at every change."""
    before = {} if previous is None else {t: cut_table.version.id for t, cut_table in previous.tables.items()}
    changed = {t: c.version for t, c in cut.tables.items() if before.get(t) != c.version.id}
    descriptions = read_described(lake) if changed else {}
    for table, version in changed.items():
        document = _document(intent, version, descriptions.get(table))
        with suppress(AlreadyExistsError):
            lake.store.put_if_absent(lake.paths.schema_version(table, cut.number), document)


def _document(intent: Intent, version: SchemaVersion, description: TableDescription | None) -> bytes:
    lake = in_lake(version)
    read = {} if description is None else {column.name: column for column in description.columns}
    columns = tuple(
        _Column(c.name, named.name, c.type_name, spark_type(c), c.attnum, *_facts(read.get(c.name)))
        for c, named in zip(version.columns, lake.columns, strict=True)
    )
    document = _SchemaDoc(
        version.table, intent.number, intent.incarnation, intent.end_lsn, version.id, columns, tuple(lake.key)
    )
    return document.to_bytes()


def _facts(column: ColumnDescription | None) -> tuple[str | None, bool | None, str | None]:
    return (None, None, None) if column is None else (column.type, column.not_null, column.default)
