"""A Delta table's schema and properties, changed in one commit: renamed, put away, added and widened columns.

Choosing those columns belongs to `planning.schema_change`, the cycle that commits to `cycle.schema_change_commits`.

Delta's ALTER TABLE makes one commit for each clause and carries no transaction id, so the commit is made through Delta's own
transaction (`jvm.Transaction`). No data file is read or written for the schema's sake:

    column mapping `name`   a column's files go by its physical name, so its name is metadata
    type widening           files keep the narrow type, and are read as the wide one
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import ONE_ATTEMPT, conflicts, version_to_follow
from lakeproof.lake.delta.commit import USER_METADATA, Applied, CommitInfo
from lakeproof.lake.delta.jvm import Transaction
from lakeproof.lake.delta.log import find_commit
from lakeproof.lake.delta.self_test import check_supported
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.spark.session import with_settings

_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
_MODE = "delta.columnMapping.mode"
_MAX_ID = "delta.columnMapping.maxColumnId"
_WIDENING = "delta.enableTypeWidening"
_CHANGES = "delta.typeChanges"
_STATISTICS = "delta.dataSkippingStatsColumns"


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

    `replace`: `rows` come in place of all existing rows.
    """

    path: str
    change: ColumnChanges
    info: CommitInfo
    expected_version: int
    rows: DataFrame | None = None
    replace: bool = False


def away_name(oid: int, attnum: int) -> str:
    """Return the prefix of the name of a column that the source dropped; no reader takes it for one of the table's."""
    return f"{PUT_AWAY}{oid}_{attnum}"


def change_schema(session: SparkSession, request: SchemaRequest) -> Applied:
    """Commit once: the schema changes, and the rows are inserted under the new one.

    If there is nothing to change and no rows there is no commit. Raises as `apply.prepare`, and LakeError if the installed
    Delta is not the one that was tried.
    """
    path, info, rows = request.path, request.info, request.rows
    version_to_follow(path, request.expected_version, info)
    check_supported(session, path)
    txn = Transaction(session, path)
    metadata = txn.metadata()
    if not _change(metadata["metaData"], request.change) and rows is None:
        return Applied(request.expected_version, 0, 0)
    try:
        txn.update_metadata(metadata)
    except Py4JJavaError as error:
        message = str(error.java_exception.getMessage()).partition("\n")[0]
        problem = {"problem": message}
        raise TableHeldError(path, HeldCause.COLUMNS_REFUSED, WayOut.BEGIN_AGAIN, problem) from error
    if rows is not None:
        if request.replace:
            txn.remove_all()
        txn.add_rows(rows)
    # A commit takes its metadata from the settings of the thread's session.
    with with_settings(session, {USER_METADATA: info.user_metadata, **ONE_ATTEMPT}), conflicts(path):
        txn.commit_update(info.app_id, info.number)
    commit = find_commit(path, request.expected_version, info.is_in)[1]
    if commit is None:
        raise InvariantError(path, f"cycle {info.number} left no commit", "report this")
    return Applied(commit.version, 0, 0)


def _change(metadata: dict[str, Any], change: ColumnChanges) -> bool:
    """Change a `metaData` action; return True if anything differs."""
    schema = json.loads(metadata["schemaString"])
    configuration = dict(metadata.get("configuration") or {})
    before = json.dumps(schema, sort_keys=True)
    fields = {f["name"]: f for f in schema["fields"]}
    if change.renamed or change.away or set(change.added) - set(fields):
        _map_by_name(list(fields.values()), configuration)
    taken = set(fields)
    for name, prefix in change.away.items():
        fields[name]["name"] = _free(prefix, taken)
        taken.add(fields[name]["name"])
    for old, new in change.renamed.items():
        fields[old]["name"] = new
    now = {f["name"]: f for f in fields.values()}
    for name, spark_type in change.retyped.items():
        _widen(now[name], _json_type(spark_type), configuration)
    for name, spark_type in change.added.items():
        if name not in now:
            now[name] = _new_field(name, spark_type, configuration)
    first = [now[name] for name in change.order]
    schema["fields"] = first + [f for name, f in now.items() if name not in set(change.order)]
    configuration.pop(_STATISTICS, None)
    if change.statistics:
        configuration[_STATISTICS] = ",".join(map(quoted, change.statistics))
    metadata["schemaString"], metadata["configuration"] = json.dumps(schema), configuration
    if any("timestamp_ntz" in added for added in change.added.values()):
        # Delta switches every other feature on by itself.
        configuration["delta.feature.timestampNtz"] = "supported"
    return json.dumps(schema, sort_keys=True) != before


def _map_by_name(fields: Iterable[dict[str, Any]], configuration: dict[str, str]) -> None:
    """Switch column mapping on: the existing files go by the names that the columns have now."""
    if configuration.get(_MODE) == "name":
        return
    number = 0
    for number, column in enumerate(fields, start=1):
        column["metadata"] = {**column["metadata"], _ID: number, _PHYSICAL: column["name"]}
    configuration |= {_MODE: "name", _MAX_ID: str(number)}


def _new_field(name: str, spark_type: str, configuration: dict[str, str]) -> dict[str, Any]:
    number = int(configuration[_MAX_ID]) + 1
    configuration[_MAX_ID] = str(number)
    mapped = {_ID: number, _PHYSICAL: f"col-{uuid.uuid4()}"}
    return {"name": name, "type": _json_type(spark_type), "nullable": True, "metadata": mapped}


def _widen(column: dict[str, Any], new_type: Any, configuration: dict[str, str]) -> None:
    if column["type"] == new_type:
        return
    configuration[_WIDENING] = "true"
    change = {"fromType": column["type"], "toType": new_type}
    column["metadata"] = {**column["metadata"], _CHANGES: [*column["metadata"].get(_CHANGES, []), change]}
    column["type"] = new_type


def _free(prefix: str, taken: set[str]) -> str:
    name, number = prefix, 1
    while name in taken:
        number += 1
        name = f"{prefix}_{number}"
    return name


def _json_type(spark_type: str) -> Any:
    return json.loads(T.StructType.fromDDL(f"{quoted('x')} {spark_type}").json())["fields"][0]["type"]
