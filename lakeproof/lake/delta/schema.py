"""A Delta table's schema and properties, changed in one commit: renamed, put away, added and widened columns.

Choosing those columns belongs to `planning.schema_change`, the cycle that commits to `cycle.schemas.commits`.

Delta's ALTER TABLE makes one commit for each clause and carries no transaction id; here it is one (`committer`). A column is
added under its own name if no file of the table can have a column of that name: then the files lack it, and it reads NULL.
Two features of Delta's make the other changes without a data file:

    column mapping `name`   a column's files go by its physical name, so its name is metadata
    type widening           files keep the narrow type, and are read as the wide one

A `portable` table has neither: its rows are written anew under the new names and types, in the same commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import needs_mapping, quoted
from lakeproof.lake.delta.committer import Applied, CommitInfo, LoggedOperation, PendingCommit, version_to_follow
from lakeproof.lake.delta.log.commits import PHYSICAL_NAME, TYPE_CHANGES, Action, LogField, LogType, NewLogField
from lakeproof.lake.delta.log.protocol import (
    COLUMN_ID,
    MAPPING_MODE,
    MAX_COLUMN_ID,
    STATISTICS,
    check_writable,
    in_log,
    name_in_files,
)
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.spark_on_demand import SparkOnDemand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WIDENING = "delta.enableTypeWidening"


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """`renamed`: old name → new name; `retyped`: new name → Spark type; `away`: name → prefix of its new name.

    `added`: name → Spark type; an existing column is left as it is. `order`: the names of the first columns, in order.
    `statistics` as in a `TableSpec`, by the new names.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    retyped: Mapping[str, str] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """One commit to the Delta table at `path` that changes its columns, and inserts `rows` under the new ones.

    `replace`: `rows` come in place of all existing rows. `portable`: readers need no feature for the change. `order`: the
    column by which rows stand in files that are written anew.
    """

    path: str
    change: ColumnChanges
    info: CommitInfo
    expected_version: int
    rows: DataFrame | None = None
    replace: bool = False
    portable: bool = False
    order: str | None = None


def away_name(oid: int, attnum: int) -> str:
    """Return the prefix of the name of a column that the source dropped; no reader takes it for one of the table's."""
    return f"{PUT_AWAY}{oid}_{attnum}"


def change_schema(spark: SparkOnDemand, request: SchemaRequest) -> Applied:
    """Commit once: the schema changes, and the rows are inserted under the new one.

    If there is nothing to change and no rows there is no commit, and Spark writes only rows. Raises as
    `committer.version_to_follow`, and TableHeldError if no table can have such columns.
    """
    path, info, rows = request.path, request.info, request.rows
    before = read_state(path, version_to_follow(path, request.expected_version, info))
    check_writable(before)
    metadata = dict(before.metadata)
    done = _change(metadata, request.change, portable=request.portable)
    if not done.differs and rows is None:
        return Applied(request.expected_version, 0, 0)
    _check_columns(path, json.loads(metadata["schemaString"])["fields"])
    frames = [] if rows is None else [rows]
    if done.rewrites and not request.replace:
        from lakeproof.lake.delta.files.optimize import in_large_files
        from lakeproof.lake.delta.versions import read_at

        kept = _under_new_names(read_at(spark.get(), path, before.version), request.change, done.names)
        size = sum(int(entry.get("size") or 0) for entry in before.files.values())
        frames.insert(0, in_large_files(kept, size, request.order))
    change = PendingCommit(path, before)
    change.set_metadata(metadata)
    if done.rewrites or request.replace:
        change.remove_all()
    inserted = 0
    for frame in frames:
        # Imported here because it imports Spark.
        from lakeproof.lake.delta.files.by_spark import write_by_spark

        inserted += change.add(write_by_spark(frame, path, info.number, metadata))
    failpoint("apply.after_links")
    operation = LoggedOperation("CHANGE COLUMNS", {}, {"numOutputRows": inserted})
    return Applied(change.commit(info, operation).version, 0, 0)


def with_columns(metadata: Action, change: ColumnChanges) -> Action:
    """Return a `metaData` action with changed columns; the same if nothing changes."""
    changed = dict(metadata)
    return changed if _change(changed, change, portable=False).differs else metadata


def _check_columns(path: str, fields: Sequence[LogField]) -> None:
    """Raise TableHeldError for columns that no reader could tell apart."""
    names = [str(field["name"]).casefold() for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        problem = {"problem": f"two columns are named {twice}"}
        raise TableHeldError(path, HeldCause.COLUMNS_REFUSED, WayOut.BEGIN_AGAIN, problem)


@dataclass(frozen=True, slots=True)
class _Changed:
    """A changed `metaData` action: `names` maps old names to new ones; `rewrites`: existing rows are written anew."""

    differs: bool
    rewrites: bool
    names: Mapping[str, str]


def _change(metadata: NewLogField, change: ColumnChanges, *, portable: bool) -> _Changed:
    """Change a `metaData` action; `portable`: without mapping and widening, unless the table has mapping already."""
    schema = json.loads(metadata["schemaString"])
    configuration = dict(metadata.get("configuration") or {})
    before = json.dumps(schema, sort_keys=True), dict(configuration)
    fields = {f["name"]: f for f in schema["fields"]}
    is_mapped = configuration.get(MAPPING_MODE) == "name"
    retyped = {n: t for n, t in change.retyped.items() if fields[_old(n, change)]["type"] != in_log(t)}
    rewrites = portable and not is_mapped and bool(change.renamed or change.away or retyped)
    named = bool(change.renamed or change.away) and not rewrites
    if not is_mapped and (named or needs_mapping(set(change.added) - set(fields))):
        _map_by_name(list(fields.values()), configuration)
    taken = set(fields)
    for name, prefix in change.away.items():
        fields[name]["name"] = _free(prefix, taken)
        taken.add(fields[name]["name"])
    for old, new in change.renamed.items():
        fields[old]["name"] = new
    now = {f["name"]: f for f in fields.values()}
    for name, spark_type in retyped.items():
        if rewrites:
            now[name]["type"] = in_log(spark_type)
        else:
            _widen(now[name], in_log(spark_type), configuration)
    for name, spark_type in change.added.items():
        if name not in now:
            now[name] = _new_field(name, spark_type, list(now.values()), configuration)
    first = [now[name] for name in change.order]
    schema["fields"] = first + [f for name, f in now.items() if name not in set(change.order)]
    configuration.pop(STATISTICS, None)
    if change.statistics:
        configuration[STATISTICS] = ",".join(map(quoted, change.statistics))
    metadata["schemaString"], metadata["configuration"] = json.dumps(schema), configuration
    differs = (json.dumps(schema, sort_keys=True), configuration) != before
    return _Changed(differs, rewrites, {old: f["name"] for old, f in fields.items()})


def _old(name: str, change: ColumnChanges) -> str:
    """Return a column's name before the change."""
    return next((old for old, new in change.renamed.items() if new == name), name)


def _under_new_names(rows: DataFrame, change: ColumnChanges, names: Mapping[str, str]) -> DataFrame:
    """Return a table's rows with the names and types that its columns get."""
    from lakeproof.lake.rows.columns import col

    types = change.retyped
    return rows.select(
        *(
            (col(old).cast(types[new]) if new in types else col(old)).alias(new)
            for old, new in names.items()
            if old in rows.columns
        )
    )


def _map_by_name(fields: Iterable[NewLogField], configuration: dict[str, str]) -> None:
    """Switch column mapping on: the existing files go by the names that the columns have now."""
    number = 0
    for number, column in enumerate(fields, start=1):
        column["metadata"] = {**column["metadata"], COLUMN_ID: number, PHYSICAL_NAME: column["name"]}
    configuration |= {MAPPING_MODE: "name", MAX_COLUMN_ID: str(number)}


def _new_field(name: str, spark_type: str, fields: Iterable[NewLogField], configuration: dict[str, str]) -> NewLogField:
    """Return a new column, under its own name in files if none of them can have it.

    A file has columns of the table alone (`links` refuses any other), and a column that is dropped keeps its name in files.
    """
    column = {"name": name, "type": in_log(spark_type), "nullable": True, "metadata": {}}
    if configuration.get(MAPPING_MODE) == "name":
        number = int(configuration[MAX_COLUMN_ID]) + 1
        configuration[MAX_COLUMN_ID] = str(number)
        in_files = {str(f["metadata"].get(PHYSICAL_NAME, f["name"])).casefold() for f in fields}
        is_free = name.casefold() not in in_files and not needs_mapping([name])
        column["metadata"] = {COLUMN_ID: number, PHYSICAL_NAME: name if is_free else name_in_files()}
    return column


def _widen(column: NewLogField, new_type: LogType, configuration: dict[str, str]) -> None:
    configuration[_WIDENING] = "true"
    change = {"fromType": column["type"], "toType": new_type}
    column["metadata"] = {**column["metadata"], TYPE_CHANGES: [*column["metadata"].get(TYPE_CHANGES, []), change]}
    column["type"] = new_type


def _free(prefix: str, taken: set[str]) -> str:
    name, number = prefix, 1
    while name in taken:
        number += 1
        name = f"{prefix}_{number}"
    return name
