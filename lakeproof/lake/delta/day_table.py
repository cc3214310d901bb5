"""A Delta table with a table's rows at the end of each day: one partition per day, each replaced as a whole.

The rows do not belong here (`lakeproof.lake.read.spark.as_of`), nor choosing days (`lakeproof.commands.daily`).

It has the table's own columns and the day, and none of lakeproof's. A day's rows have the columns of that day: columns that
other days have are NULL in it. No cut names it, so it may be moved away, and made again from what history still has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING

from lakeproof.errors import LakeError
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.committer import AddedFile, LoggedOperation, PendingCommit
from lakeproof.lake.delta.files.data_files import data_file
from lakeproof.lake.delta.files.needed import table_files, unneeded
from lakeproof.lake.delta.log.commits import NO_VERSION, Action, newest_version, physical_names, read_commit
from lakeproof.lake.delta.log.protocol import TableSpec, check_writable, in_spark, metadata_of, new_fields
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.delta.schema import ColumnChanges, with_columns
from lakeproof.storage.store import LockHandle
from lakeproof.storage.times import now_text, time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = "day"
_NUMBERS = ("tinyint", "smallint", "int", "bigint")
# In the metadata of each commit.
_MADE_AT = "made_at"


def read_day(session: SparkSession, path: str, day: date) -> DataFrame:
    """Return a day's rows with the columns of the table."""
    # Imported here, and below, because it imports Spark.
    from lakeproof.lake.rows.columns import col

    name = _day_column(read_state(path, newest_version(path)), ())
    return session.read.format("delta").load(path).where(col(name) == day).drop(name)


def write_day(path: str, rows: DataFrame, day: date, lock: LockHandle) -> int:
    """Replace a day's rows in one commit, and return its version; `lock` is that of who makes days.

    Raises LakeError, before anything is written, if a column has a type that the days before can't have, TransientError if
    somebody else has committed meanwhile, or may have the lock: then maintenance may have removed what was written.
    """
    from lakeproof.lake.delta.files.by_spark import schema_fields, write_by_spark

    before = newest_version(path)
    state = None if before == NO_VERSION else read_state(path, before)
    change, name, text = PendingCommit(path, state), _day_column(state, rows.columns), day.isoformat()
    if state is None:
        options = {**TableSpec().options([*rows.columns, name]), "delta.enableTypeWidening": "true"}
        metadata: Action = metadata_of([*schema_fields(rows), *new_fields({name: "date"})], options, [name])
    else:
        check_writable(state, partitioned=True)
        rows, columns = _fitting(state, rows, name)
        metadata = with_columns(state.metadata, columns)
    if state is None or metadata != state.metadata:
        change.set_metadata(metadata)
    partition = {physical_names(json.loads(metadata["schemaString"])["fields"])[name]: text}
    for entry in () if state is None else state.files.values():
        if entry["partitionValues"] == partition:
            change.remove(entry)
    files = write_by_spark(rows, path, before + 1, metadata)
    inserted = change.add(AddedFile({**file.entry, "partitionValues": partition}) for file in files)
    note = json.dumps({_MADE_AT: now_text(), "day": text}, sort_keys=True)
    parameters = {"mode": "Overwrite", "partitionBy": json.dumps([name]), "predicate": f"{quoted(name)} = '{text}'"}
    # No cut follows that could wait for the commit, and no cycle that takes back what a power cut has left of it.
    change.table.store.sync_files([change.table.key_of(data_file(file.entry).path) for file in files])
    operation = LoggedOperation("WRITE", parameters, {"numOutputRows": inserted}, note)
    lock.check()
    return change.commit(None, operation, durable=True).version


def _day_column(state: TableState | None, columns: Sequence[str]) -> str:
    """Return the name of the column of days: that of the table, or `day` with underscores after it while it is taken."""
    if state is not None:
        (name,) = state.metadata["partitionColumns"]
        return str(name)
    name, taken = DAY, {column.casefold() for column in columns}
    while name in taken:
        name += "_"
    return name


def unneeded_by_readers(path: str, limit: datetime) -> list[tuple[str, int]]:
    """Return the files of versions that were followed by another before `limit`, each with its bytes."""
    newest = newest_version(path)
    if newest == NO_VERSION:
        return []
    oldest = newest
    while oldest > 0 and _made_at(path, oldest) >= limit and read_commit(path, oldest - 1) is not None:
        oldest -= 1
    return unneeded(path, table_files(path, oldest, newest))


def _made_at(path: str, version: int) -> datetime:
    """Return the time of a commit; the earliest there is for one that is not ours."""
    commit = read_commit(path, version)
    try:
        return time_of(str(json.loads((commit and commit.user_metadata) or "{}")[_MADE_AT]))
    except (ValueError, KeyError, TypeError):
        return datetime.min.replace(tzinfo=timezone.utc)


def _fitting(state: TableState, rows: DataFrame, day: str) -> tuple[DataFrame, ColumnChanges]:
    """Return the rows under the table's names, and the columns that come or get wider.

    Raises LakeError for a column that does not fit.
    """
    from lakeproof.lake.rows.columns import col

    stored = {field["name"].casefold(): field for field in state.fields}
    columns, added, wider = [], dict[str, str](), dict[str, str]()
    for field in rows.schema:
        now, old = field.dataType.simpleString(), stored.get(field.name.casefold())
        if field.name.casefold() == day.casefold():
            raise LakeError(
                state.path, f"the table has a column {field.name} now, as the column of days is named", _MOVE
            )
        name, then = (field.name, None) if old is None else (str(old["name"]), in_spark(old["type"]))
        if then is None:
            added[name] = now
        elif _widens(then, now):
            wider[name] = now
        elif then != now and not _widens(now, then):
            raise LakeError(state.path, f"column {field.name} is {now} on this day and {then} on others", _MOVE)
        columns.append(col(field.name).alias(name))
    return rows.select(*columns), ColumnChanges(added=added, retyped=wider)


_MOVE = "move that folder away, and make the days again"


def _widens(narrow: str, wide: str) -> bool:
    """True if every value of the old type is a value of the new type, and Delta may widen it."""
    if narrow in _NUMBERS and wide in _NUMBERS:
        return _NUMBERS.index(narrow) < _NUMBERS.index(wide)
    if narrow.startswith("decimal(") and wide.startswith("decimal("):
        (p, s), (q, t) = (tuple(int(n) for n in each[8:-1].split(",")) for each in (narrow, wide))
        return t >= s and q - t >= p - s
    return (narrow, wide) == ("float", "double")
