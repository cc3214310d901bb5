"""Makes a table portable that is configured so: both its Delta tables are written anew, in logs that begin again.

The features themselves belong to `lakeproof.lake.delta.reader_features`, commits to a portable table to `delta.apply` and
`delta.schema`.

    V: vectors, mapping ── V+1: a checkpoint of the same rows in new files, and a protocol without them ── the cycle's commit

Delta takes a feature out of a table in several commits, and its versions before can't be read by everybody then. Here they
keep their numbers and files, as when a log could not be read (`broken_log`): what older cuts name is read as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pyspark.sql import SparkSession

from lakeproof.hidden_columns import ORD
from lakeproof.lake.columns import column_names, current_statistics, history_statistics, in_lake, needs_mapping
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.commit import TableSpec
from lakeproof.lake.delta.files import table_files
from lakeproof.lake.delta.jvm import Jvm, forget
from lakeproof.lake.delta.log_restart import move_in, scratch_place
from lakeproof.lake.delta.optimize import in_large_files
from lakeproof.lake.delta.reader_features import reader_features
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.schema import SchemaVersion


def as_configured(session: SparkSession, context: CycleContext, task: TableTask) -> CutTable | None:
    """Return the task's state before, in versions without the features that a portable table does without.

    Raises TableHeldError if the table is to have names that need column mapping. Both logs end at the task's versions.
    """
    before = task.before
    if task.table not in context.portable:
        return before
    _check_names(task.version if task.schema_change is None else task.schema_change.version)
    if before is None or needs_mapping(column_names(in_lake(before.version))):
        return before
    return replace(
        before,
        history_version=_portable(session, context, task, "history", before.history_version),
        current_version=_portable(session, context, task, "current", before.current_version),
    )


def _check_names(version: SchemaVersion) -> None:
    refused = [name for name in column_names(in_lake(version)) if needs_mapping([name])]
    if refused:
        names = {"names": ", ".join(f"`{name}`" for name in refused)}
        cause, way_out = HeldCause.NAMES_NOT_PORTABLE, WayOut.OTHER_NAMES_THEN_SNAPSHOT
        raise TableHeldError(str(version.table), cause, way_out, names)


def _portable(
    session: SparkSession,
    context: CycleContext,
    task: TableTask,
    layer: Literal["history", "current"],
    version: int,
) -> int:
    """Return the version that has the rows of `version` and needs no feature: the same one, or the next."""
    lake, before = context.lease.lake, task.before
    path = lake.url(lake.paths.history(task.table) if layer == "history" else lake.paths.current(task.table))
    if before is None or reader_features(path, version).is_portable:
        return version
    schema = in_lake(before.version)
    statistics = history_statistics(schema) if layer == "history" else current_statistics(schema)
    pinned = replace(before, history_version=version, current_version=version)
    rows = read_layer(session, lake, task.table, pinned, layer)
    size = sum(file.bytes for file in table_files(path, version).newest)
    rows = in_large_files(rows, size, ORD if layer == "history" else None)
    context.lease.check()
    place = scratch_place(path)
    # The cycle's note, and not its transaction: Delta would take the commit of the rows for a repeat.
    writer = rows.write.format("delta").option("userMetadata", context.commit_info(layer, task.table).user_metadata)
    writer.options(**TableSpec(statistics=statistics, portable=True).options(rows.columns)).save(place)
    jvm = Jvm(session)
    jvm.delta.DeltaLog.forTable(jvm.jsession, place).checkpoint()
    move_in(path, place, version + 1)
    for changed in (place, path):
        forget(session, changed)
    return version + 1
