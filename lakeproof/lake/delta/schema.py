"""A Delta table's schema and properties, changed in one commit: renamed, put away, added and widened columns.

Which columns those are belongs to `evolution`, what else the commit carries to `reshape`.

Delta's ALTER TABLE makes one commit for each clause and carries no transaction id, so the commit is made through Delta's own
transaction, whose names are internal to delta-spark (DeltaLog.forTable, startTransaction, updateMetadata, writeFiles,
filterFiles, commit, Action.fromJson, SetTransaction, ManualUpdate). No data file is read or written for the schema's sake:

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

from lakeproof.errors import BEGIN_AGAIN, InvariantError, TableError
from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import ONE_ATTEMPT, conflicts, version_to_follow
from lakeproof.lake.delta.commit import USER_METADATA, Applied, CommitInfo
from lakeproof.lake.delta.jvm import Jvm
from lakeproof.lake.delta.log import find_commit
from lakeproof.lake.spark.session import with_settings

_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
_MODE = "delta.columnMapping.mode"
_MAX_ID = "delta.columnMapping.maxColumnId"
_WIDENING = "delta.enableTypeWidening"
_CHANGES = "delta.typeChanges"
_STATISTICS = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """`renamed`: old name → new name; `retyped`: new name → Spark type; `away`: name → what its new name begins with.

    `added`: name → Spark type; one that the table has is left as it is. `order`: the names in front, in order. `statistics`
    as in a `TableSpec`, by the new names.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    retyped: Mapping[str, str] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()


def away_name(oid: int, attnum: int) -> str:
    """What the name of a column that was dropped in the source begins with: no reader takes it for one of the table's."""
    return f"{PUT_AWAY}{oid}_{attnum}"


def change_schema(
    session: SparkSession,
    path: str,
    change: SchemaChange,
    commit: CommitInfo,
    *,
    rows: DataFrame | None = None,
    replace: bool = False,
    expected_version: int,
) -> Applied:
    """Commit once: the schema changes, `rows` come under the new one (instead of all that is there, if `replace`).

    Nothing to change and no rows: no commit. Errors as `apply`.
    """
    version_to_follow(path, expected_version, commit)
    jvm = Jvm(session)
    opened = jvm.delta.DeltaLog.forTable(jvm.jsession, path).startTransaction(jvm.none, jvm.none)
    action = _module(jvm.delta.actions, "Action$")
    metadata = json.loads(opened.metadata().json())
    if not _change(metadata["metaData"], change) and rows is None:
        return Applied(expected_version, 0, 0)
    try:
        opened.updateMetadata(action.fromJson(json.dumps(metadata)), False)
    except Py4JJavaError as error:
        told = str(error.java_exception.getMessage()).partition("\n")[0]
        raise TableError(path, f"Delta refuses the change of its columns: {told}", BEGIN_AGAIN) from error
    actions = [jvm.delta.actions.SetTransaction(commit.app_id, commit.number, jvm.none)]
    if rows is not None:
        if replace:
            actions += [file.remove() for file in jvm.items(opened.filterFiles())]
        actions += jvm.items(opened.writeFiles(rows._jdf))  # noqa: SLF001  Delta's transaction has no Python API
    # A commit takes its metadata from the settings of the thread's session.
    with with_settings(session, {USER_METADATA: commit.user_metadata, **ONE_ATTEMPT}), conflicts(path):
        opened.commit(jvm.seq(actions), _module(jvm.delta, "DeltaOperations$ManualUpdate$"))
    made = find_commit(path, expected_version, commit.is_in)[1]
    if made is None:
        raise InvariantError(path, f"cycle {commit.number} left no commit", "report this")
    return Applied(made.version, 0, 0)


def _change(metadata: dict[str, Any], change: SchemaChange) -> bool:
    """Change a `metaData` action; whether anything differs."""
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
    """Switch column mapping on: the files there are go by the names that the columns have now."""
    if configuration.get(_MODE) == "name":
        return
    number = 0
    for number, one in enumerate(fields, start=1):
        one["metadata"] = {**one["metadata"], _ID: number, _PHYSICAL: one["name"]}
    configuration |= {_MODE: "name", _MAX_ID: str(number)}


def _new_field(name: str, spark_type: str, configuration: dict[str, str]) -> dict[str, Any]:
    number = int(configuration[_MAX_ID]) + 1
    configuration[_MAX_ID] = str(number)
    mapped = {_ID: number, _PHYSICAL: f"col-{uuid.uuid4()}"}
    return {"name": name, "type": _json_type(spark_type), "nullable": True, "metadata": mapped}


def _widen(column: dict[str, Any], wanted: Any, configuration: dict[str, str]) -> None:
    if column["type"] == wanted:
        return
    configuration[_WIDENING] = "true"
    made = {"fromType": column["type"], "toType": wanted}
    column["metadata"] = {**column["metadata"], _CHANGES: [*column["metadata"].get(_CHANGES, []), made]}
    column["type"] = wanted


def _free(prefix: str, taken: set[str]) -> str:
    name, number = prefix, 1
    while name in taken:
        number += 1
        name = f"{prefix}_{number}"
    return name


def _json_type(spark_type: str) -> Any:
    return json.loads(T.StructType.fromDDL(f"{quoted('x')} {spark_type}").json())["fields"][0]["type"]


def _module(package: Any, name: str) -> Any:
    return getattr(getattr(package, name), "MODULE$")
