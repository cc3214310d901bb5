"""Delta's protocol as far as it has to be known: features, the tables that are refused, and a new table's metadata.

Making a version does not belong here (`committer`), nor refusing names that need a feature (`lakeproof.lake.cycle.task`).
`docs/delta-protocol.md` has every demand. No Spark runs here: `status` asks what readers must know, and why.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import needs_mapping, quoted
from lakeproof.lake.delta.log.commits import (
    NO_VERSION,
    PHYSICAL_NAME,
    TYPE_CHANGES,
    Action,
    LogField,
    LogType,
    newest_version,
    now_ms,
    physical_name,
    physical_names,
)
from lakeproof.lake.delta.log.state import TableState, table_shape
from lakeproof.values.types import LAKE_TYPES

VECTORS, MAPPING, WIDENING, NO_ZONE = "deletionVectors", "columnMapping", "typeWidening", "timestampNtz"
# What a portable table does without; a type of a column is not a matter of how a table is written.
NOT_PORTABLE = frozenset({VECTORS, MAPPING, WIDENING})
VECTORS_ENABLED = "delta.enableDeletionVectors"
# From these versions of the protocol on it lists features; version 2 for readers is column mapping, version 1 nothing.
LISTS_FEATURES_READER, LISTS_FEATURES_WRITER = 3, 7
_MAPS = 2
_DELTAS_OWN = "col-"


def name_in_files() -> str:
    """Return a new name for a column in data files, of the form that Delta gives it."""
    return f"{_DELTAS_OWN}{uuid.uuid4()}"


def reader_features(path: str, version: int) -> dict[str, str]:
    """Return what readers of a version must know, with the reasons; raises LogGapError if its log can't be read."""
    shape = table_shape(path, version)
    names, fields = list(shape.protocol.get("readerFeatures") or []), shape.fields
    if shape.protocol["minReaderVersion"] < LISTS_FEATURES_READER:
        names = [MAPPING] if shape.protocol["minReaderVersion"] == _MAPS else []
    return {name: "; ".join(_reasons(name, fields)) or "since an earlier change" for name in sorted(names)}


def _reasons(feature: str, fields: list[LogField]) -> Iterator[str]:
    if feature == VECTORS:
        yield "deleted rows are marked, and stay in their files"
    elif feature == MAPPING:
        yield from _renamings(fields)
    for one in fields:
        name, more = one["name"], one.get("metadata") or {}
        if feature == WIDENING and more.get(TYPE_CHANGES):
            yield f"{name} was {more[TYPE_CHANGES][0]['fromType']}"
        elif feature == NO_ZONE and "timestamp_ntz" in json.dumps(one["type"]):
            yield f"{name} is a timestamp without a time zone"


def _renamings(fields: list[LogField]) -> Iterator[str]:
    """Yield why columns have other names in files: where one needs it, all that came since have a name of Delta's."""
    nameless = 0
    for name, in_files in physical_names(fields).items():
        if name.startswith(PUT_AWAY):
            # Columns that came after the first one are in files under a name of Delta's.
            if in_files.startswith(_DELTAS_OWN):
                nameless += 1
            else:
                yield f"{in_files} was dropped"
        elif needs_mapping([name]):
            yield f"a file can't have the name {name}"
        elif name != in_files and not in_files.startswith(_DELTAS_OWN):
            yield f"{name} was {in_files}"
    if nameless:
        yield f"{nameless} later {'column was' if nameless == 1 else 'columns were'} dropped"


COLUMN_ID = "delta.columnMapping.id"
MAPPING_MODE = "delta.columnMapping.mode"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
STATISTICS = "delta.dataSkippingStatsColumns"
# Names in a list, quoted as in SQL or not.
_NAMES = re.compile(r"`((?:[^`]|``)*)`|([^`,]+)")
_BASE_FEATURES = ("appendOnly", "invariants")
# What a reader has to know, of the features that a table may have here.
READER_FEATURES = frozenset({MAPPING, NO_ZONE, VECTORS, WIDENING, "typeWidening-preview"})
# What a commit of ours may be made on: the features that were tried. Row tracking, in-commit timestamps, catalog-managed
# tables and the like ask more of a writer than is done here.
KNOWN_FEATURES = frozenset(
    {
        *_BASE_FEATURES,
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "domainMetadata",
        "generatedColumns",
        *READER_FEATURES,
    }
)
# Properties, and rules in a column's metadata, that a writer has to keep, and that nothing here keeps.
_ACTIVE = ("delta.enableRowTracking", "delta.enableInCommitTimestamps", "delta.appendOnly")
_RULES_OF_COLUMNS = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


def check_writable(state: TableState, *, partitioned: bool = False) -> None:
    """Raise LakeError about a table that asks more of a writer than is done here; only a table of days is `partitioned`."""
    others = sorted(state.features - KNOWN_FEATURES)
    version = state.protocol.get("minWriterVersion", 0)
    others += [name for name in _ACTIVE if state.has_property(name, "true")]
    others += [name for name in state.metadata.get("configuration") or {} if name.startswith("delta.constraints.")]
    others += [name for name in _RULES_OF_COLUMNS if f'"{name}"' in state.metadata["schemaString"]]
    others += ["partitions"] if state.is_partitioned and not partitioned else []
    if others or version > LISTS_FEATURES_WRITER:
        reason = f"it has {', '.join(others) or f'version {version} of the protocol'}, which lakeproof does not write"
        raise LakeError(state.path, reason, "take that away again, or move the table away and bootstrap it")


def metadata_of(
    fields: Sequence[LogField],
    configuration: Mapping[str, str],
    partitions: Sequence[str] = (),
    physical: Mapping[str, str] | None = None,
) -> Action:
    """Return a new table's `metaData` action, with column mapping if the configuration asks for it.

    `physical` are names that columns have in files; any other column has its own there, if Parquet takes that.
    """
    settings, columns = dict(configuration), list(fields)
    if settings.get(MAPPING_MODE) == "name":
        numbers, names = count(1), physical or {}
        columns = [_with_ids(each, numbers, names.get(each["name"], each["name"])) for each in columns]
        settings[MAX_COLUMN_ID] = str(next(numbers) - 1)
    return {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": list(partitions),
        "configuration": settings,
        "createdTime": now_ms(),
    }


def with_other_columns(metadata: Action, fields: Sequence[LogField]) -> Action:
    """Return a `metaData` action with these columns in place of all that the table has: no file of it has one of them."""
    settings, columns = dict(metadata.get("configuration") or {}), list(fields)
    if settings.get(MAPPING_MODE, "none") != "none":
        numbers = count(int(settings[MAX_COLUMN_ID]) + 1)
        columns = [_with_ids(each, numbers, name_in_files()) for each in columns]
        settings[MAX_COLUMN_ID] = str(next(numbers) - 1)
    schema = json.dumps({"type": "struct", "fields": columns})
    return {**metadata, "schemaString": schema, "configuration": settings}


def _with_ids(field: LogField, numbers: Iterator[int], in_files: str) -> Action:
    """Return a column with its number and its name in files, if Parquet takes that; so with each field inside it."""
    in_files = name_in_files() if needs_mapping([in_files]) else in_files
    metadata = {**(field.get("metadata") or {}), COLUMN_ID: next(numbers), PHYSICAL_NAME: in_files}
    kind = _with_fields(field["type"], lambda inside: _with_ids(inside, numbers, inside["name"]))
    return {**field, "metadata": metadata, "type": kind}


def statistics_of(metadata: Action) -> tuple[str, ...]:
    """Return the columns that a table's properties choose for statistics; none, if they are the first of the table."""
    chosen = str((metadata.get("configuration") or {}).get(STATISTICS) or "")
    return tuple(quoted.replace("``", "`") if quoted else bare.strip() for quoted, bare in _NAMES.findall(chosen))


def protocol_for(metadata: Action, before: Action | None) -> Action:
    """Return the protocol that a table needs: what it has, and the features that its columns and properties ask for."""
    settings = metadata.get("configuration") or {}
    needed = set()
    if settings.get(VECTORS_ENABLED) == "true":
        needed.add(VECTORS)
    if settings.get(MAPPING_MODE, "none") != "none":
        needed.add(MAPPING)
    if settings.get("delta.enableTypeWidening") == "true":
        needed.add(WIDENING)
    if '"timestamp_ntz"' in metadata["schemaString"]:
        needed.add(NO_ZONE)
    if before is None:
        before = {"minReaderVersion": 1, "minWriterVersion": 2}
    lists = before["minWriterVersion"] >= LISTS_FEATURES_WRITER
    existing = set(before.get("writerFeatures") or ()) if lists else set(_legacy(before["minWriterVersion"]))
    if needed <= existing:
        return dict(before)
    writers = existing | needed | (set() if lists else set(_BASE_FEATURES))
    readers = set(before.get("readerFeatures") or ()) | (writers & READER_FEATURES)
    return {
        "minReaderVersion": LISTS_FEATURES_READER,
        "minWriterVersion": LISTS_FEATURES_WRITER,
        "readerFeatures": sorted(readers),
        "writerFeatures": sorted(writers),
    }


def _legacy(version: int) -> tuple[str, ...]:
    """Return the features that a version of the protocol without a list implies for writers."""
    features: tuple[str, ...] = ()
    for since, names in (
        (2, _BASE_FEATURES),
        (3, ("checkConstraints",)),
        (4, ("changeDataFeed", "generatedColumns")),
        (5, (MAPPING,)),
    ):
        features += names if version >= since else ()
    return features


_IN_SPARK = {lake_type.in_log: spark for spark, lake_type in LAKE_TYPES.items()}
_ARRAY = "array<"


def in_log(spark_type: str) -> LogType:
    """Return a type, as `lakeproof.values.types` names it, in the form of the log's schema text; KeyError for another."""
    if spark_type.startswith(_ARRAY):
        return {"type": "array", "elementType": in_log(spark_type[len(_ARRAY) : -1]), "containsNull": True}
    return spark_type if spark_type.startswith("decimal(") else LAKE_TYPES[spark_type].in_log


def in_spark(type_in_log: str | LogField) -> str:
    """Return the name that Spark's SQL has for a type of the log's schema text."""
    if isinstance(type_in_log, str):
        # A string with a collation is a string.
        name = type_in_log.partition(" collate")[0]
        return _IN_SPARK.get(name, name)
    match type_in_log["type"]:
        case "array":
            return f"array<{in_spark(type_in_log['elementType'])}>"
        case "map":
            return f"map<{in_spark(type_in_log['keyType'])},{in_spark(type_in_log['valueType'])}>"
        case "struct":
            fields = [f"{field['name']}:{in_spark(field['type'])}" for field in type_in_log["fields"]]
            return f"struct<{','.join(fields)}>"
        case other:
            return str(other)


def column_types(path: str, version: int | None = None) -> dict[str, str]:
    """Return the columns of a version, or of the newest, with their types; nothing if there is no table.

    Raises LogGapError if its log can't be read.
    """
    version = newest_version(path) if version is None else version
    if version == NO_VERSION:
        return {}
    fields = table_shape(path, version).fields
    return {field["name"]: in_spark(field["type"]) for field in fields if not field["name"].startswith(PUT_AWAY)}


def new_fields(columns: Mapping[str, str]) -> list[LogField]:
    """Return columns, by name with their Spark types, as the fields of a schema text."""
    return [{"name": n, "type": in_log(kind), "nullable": True, "metadata": {}} for n, kind in columns.items()]


def in_files(kind: LogType) -> LogType:
    """Return a type of the log's schema text with the names that fields inside it have in data files."""
    return _with_fields(kind, lambda f: {**f, "name": physical_name(f), "type": in_files(f["type"])})


def _with_fields(kind: LogType, changed: Callable[[LogField], LogField]) -> LogType:
    """Return a type of the log's schema text with the fields of each struct inside it changed, in their order."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [changed(field) for field in kind["fields"]]}
    inside = [name for name in ("elementType", "keyType", "valueType") if name in kind]
    return {**kind, **{name: _with_fields(kind[name], changed) for name in inside}}


# A commit's checkpoint costs as much as five small commits; one in 10 is Delta's default.
CHECKPOINT_INTERVAL = 50
# Delta refuses a version because of its age, even if all its files exist, and forgets it because of its age, too: an idle
# table at the version that a cut names. What a kept cut names stays; only `files` removes the rest, and nothing else does.
_KEEP = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The Delta properties of a new table, beside those that every table has.

    `statistics` are the columns whose least and greatest values stand in each file's entry in the log; if there are none,
    Delta takes the table's first 32. `portable`: the table is written without vectors and column mapping, so its names are
    such as Parquet takes.
    """

    statistics: tuple[str, ...] = ()
    portable: bool = False

    def options(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the writer's options; deletion vectors spare rewriting rows that do not change."""
        mapping = {MAPPING_MODE: "name"} if needs_mapping(columns) and not self.portable else {}
        return {
            VECTORS_ENABLED: "false" if self.portable else "true",
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            **_KEEP,
            **mapping,
            **({STATISTICS: ",".join(map(quoted, self.statistics))} if self.statistics else {}),
        }
