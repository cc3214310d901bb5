"""Refuses the names of a table that is configured portable, if readers would need column mapping for them.

How a table is written is decided when it begins (`lakeproof.lake.delta.protocol.TableSpec`) and does not belong here.
"""

from __future__ import annotations

from lakeproof.lake.columns import column_names, in_lake, needs_mapping
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.work import SchemaChange


def check_names(context: CycleContext, task: TableTask) -> None:
    """Raise TableHeldError if a portable table is to have names that need column mapping."""
    if task.table not in context.portable:
        return
    version = task.work.version if isinstance(task.work, SchemaChange) else task.version
    refused = [name for name in column_names(in_lake(version)) if needs_mapping([name])]
    if refused:
        names = {"names": ", ".join(f"`{name}`" for name in refused)}
        cause, way_out = HeldCause.NAMES_NOT_PORTABLE, WayOut.OTHER_NAMES_THEN_SNAPSHOT
        raise TableHeldError(str(version.table), cause, way_out, names)
