"""A Delta table with a table's rows at the end of each day: one partition per day, each replaced as a whole.

The rows do not belong here (`lakeproof.lake.read.days`), nor choosing days (`lakeproof.commands.daily`).

It has the table's own columns and the day, and none of lakeproof's. A day's rows have the columns of that day: columns that
other days have are NULL in it. No cut names it, so it may be moved away, and made again from what history still has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime, timezone

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.commit import TableSpec
from lakeproof.lake.delta.files import table_files, unneeded
from lakeproof.lake.delta.log import NO_VERSION, newest_version, read_commit
from lakeproof.lake.rows.columns import col
from lakeproof.lake.spark.session import with_settings
from lakeproof.storage.folder import Folder
from lakeproof.storage.times import now_text, time_of

DAY = "day"
_NUMBERS = ("tinyint", "smallint", "int", "bigint")
# In the metadata of each commit.
_MADE_AT = "made_at"


ONE_ATTEMPT = {"spark.databricks.delta.maxCommitAttempts": "0"}
_NO_CHECKSUM = {"spark.databricks.delta.writeChecksumFile.enabled": "false"}
_LOST = "DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
_CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)


def one_attempt(session: SparkSession, path: str, before: int) -> AbstractContextManager[None]:
    """Set how a commit on version `before` is made: on that version, or not at all."""
    is_first = before == NO_VERSION and Folder.at(path).store.holders_may_sleep
    return with_settings(session, {**ONE_ATTEMPT, **(_NO_CHECKSUM if is_first else {})})


@contextmanager
def conflicts(path: str) -> Iterator[None]:
    """Turn a lost race for the table's next version into TransientError; nothing was committed then."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if not isinstance(error, _CONFLICTS) and _LOST not in str(error):
            raise
        raise TransientError(
            path, "someone else committed to the table meanwhile", "the next run finishes the cycle"
        ) from error


def day_column(session: SparkSession, path: str, columns: Sequence[str]) -> str:
    """Return the name of the column of days: that of the table, or `day` with underscores after it while it is taken."""
    if newest_version(path) != NO_VERSION:
        (name,) = session.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]["partitionColumns"]
        return str(name)
    name, taken = DAY, {column.casefold() for column in columns}
    while name in taken:
        name += "_"
    return name


def read_day(session: SparkSession, path: str, day: date) -> DataFrame:
    """Return a day's rows with the columns of the table."""
    name = day_column(session, path, ())
    return session.read.format("delta").load(path).where(col(name) == F.lit(day)).drop(name)


def write_day(session: SparkSession, path: str, rows: DataFrame, day: date) -> int:
    """Replace a day's rows in one commit, and return its version; `session` is the caller's own.

    Raises LakeError, before anything is written, if a column has a type that the days before can't have.
    """
    before, name = newest_version(path), day_column(session, path, rows.columns)
    if before != NO_VERSION:
        rows = _fitting(session, path, rows, name)
    metadata = {_MADE_AT: now_text(), "day": day.isoformat()}
    options = {"userMetadata": json.dumps(metadata, sort_keys=True), "mergeSchema": "true"}
    if before == NO_VERSION:
        widening = {"delta.enableTypeWidening": "true"}
        options |= {**TableSpec().options([*rows.columns, name]), **widening}
    else:
        options["replaceWhere"] = f"{quoted(name)} = '{day.isoformat()}'"
    writer = rows.withColumn(name, F.lit(day)).write.format("delta").mode("overwrite").options(**options)
    with one_attempt(session, path, before), conflicts(path):
        writer.partitionBy(name).save(path)
    return newest_version(path)


def unneeded_by_readers(path: str, limit: datetime) -> Iterator[tuple[str, int]]:
    """Yield the files of versions that were followed by another before `limit`, each with its bytes."""
    newest = newest_version(path)
    if newest == NO_VERSION:
        return
    oldest = newest
    while oldest > 0 and _made_at(path, oldest) >= limit and read_commit(path, oldest - 1) is not None:
        oldest -= 1
    yield from unneeded(path, table_files(path, oldest, newest))


def _made_at(path: str, version: int) -> datetime:
    """Return the time of a commit; the earliest there is for one that is not ours."""
    commit = read_commit(path, version)
    try:
        return time_of(str(json.loads((commit and commit.user_metadata) or "{}")[_MADE_AT]))
    except (ValueError, KeyError, TypeError):
        return datetime.min.replace(tzinfo=timezone.utc)


def _fitting(session: SparkSession, path: str, rows: DataFrame, day: str) -> DataFrame:
    """Return the rows with the table's types where these are wider; raises LakeError for a column that does not fit."""
    stored = {f.name.casefold(): f.dataType.simpleString() for f in session.read.format("delta").load(path).schema}
    columns = []
    for field in rows.schema:
        now, then = field.dataType.simpleString(), stored.get(field.name.casefold())
        if field.name.casefold() == day.casefold():
            raise LakeError(path, f"the table has a column {field.name} now, as the column of days is named", _MOVE)
        if then is None or then == now or _widens(then, now):
            columns.append(col(field.name))
        elif _widens(now, then):
            columns.append(col(field.name).cast(then).alias(field.name))
        else:
            raise LakeError(path, f"column {field.name} is {now} on this day and {then} on others", _MOVE)
    return rows.select(*columns)


_MOVE = "move that folder away, and make the days again"


def _widens(narrow: str, wide: str) -> bool:
    """True if each value of a type is one of the other, and Delta may widen it."""
    if narrow in _NUMBERS and wide in _NUMBERS:
        return _NUMBERS.index(narrow) < _NUMBERS.index(wide)
    if narrow.startswith("decimal(") and wide.startswith("decimal("):
        (p, s), (q, t) = (tuple(int(n) for n in each[8:-1].split(",")) for each in (narrow, wide))
        return t >= s and q - t >= p - s
    return (narrow, wide) == ("float", "double")
