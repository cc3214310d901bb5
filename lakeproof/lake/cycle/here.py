"""Which tables of a cycle this process writes, and which it leaves to Spark.

Writing a range or a first copy is in `table`, a copy of a table that the lake has in `table_again`.
"""

from __future__ import annotations

from lakeproof.errors import InvariantError
from lakeproof.lake.cycle.table import entry_range, of_one_schema, refuse_unlinkable, write_entry, write_range
from lakeproof.lake.cycle.table_again import check_again, write_again, write_keys
from lakeproof.lake.cycle.task import KeyedEntry, SnapshotEntry, TableResult, TableTask
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import Unsupported
from lakeproof.lake.spark_on_demand import SparkOnDemand


def why_spark(task: TableTask) -> str | None:
    """Return why Spark has to write a table, as far as manifests say it; rows may call for it all the same."""
    try:
        match task.work, task.before:
            case SnapshotEntry() as entry, None:
                entry_range(task, entry)
            case SnapshotEntry() as entry, CutTable() as before:
                check_again(task, entry, before)
            case KeyedEntry(), _:
                pass
            case _:
                changes = of_one_schema(task.own_range())
                if changes.counts.rows:
                    refuse_unlinkable(task, changes.landed)
    except Unsupported as error:
        return str(error)
    return None


def write_here(spark: SparkOnDemand, task: TableTask) -> TableResult:
    """Write one table in this process; raises `Unsupported`, before any commit, if Spark is to write it."""
    match task.work, task.before:
        case SnapshotEntry() as entry, None:
            return write_entry(task, entry)
        case SnapshotEntry() as entry, CutTable() as before:
            return write_again(spark, task, entry, before)
        case KeyedEntry() as keyed, CutTable() as before:
            return write_keys(task, keyed, before)
        case KeyedEntry(), None:
            raise InvariantError(
                str(task.table), "a copy of keys enters a table that is not in the lake", "report this"
            )
    return write_range(spark, task)
