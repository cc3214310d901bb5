"""A table's rows that came and went between two versions, from the files that its commits name.

What a change means does not belong here (`lakeproof.views.strategies`). The reader is Delta's own, for the changes of a
table without a change data feed: of a file that got another deletion vector it reads the rows in the difference of the two
alone, and nothing of files that were put together. It is a name inside Delta, as those of `jvm`, of the same one version.
"""

from __future__ import annotations

from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import CAME
from lakeproof.lake.delta.jvm import Jvm
from lakeproof.lake.delta.self_test import known_reason
from lakeproof.lake.rows.columns import col

# Each version is a scan of its own in the plan.
VERSIONS_MAX = 64
_KIND = "_change_type"


class ChangesUnavailableError(Exception):
    """The changes can't be read in this way; the message says why."""


def row_changes(session: SparkSession, path: str, first: int, last: int, columns: Sequence[str]) -> DataFrame:
    """Return the rows of the versions after `first` up to `last`, with `CAME`; a row may come and go within them.

    Raises ChangesUnavailableError if Delta refuses, if the versions are too many, or if its names can't be used.
    """
    reason = known_reason(session)
    if reason is not None:
        raise ChangesUnavailableError(reason)
    if last - first > VERSIONS_MAX:
        raise ChangesUnavailableError(f"there are {last - first} versions, more than {VERSIONS_MAX}")
    jvm = Jvm(session)
    try:
        log = jvm.delta.DeltaLog.forTable(jvm.jsession, path)
        snapshot = log.getSnapshotAt(last, jvm.none, jvm.none, True)
        reader = getattr(getattr(jvm.delta.commands.cdc, "CDCReader$"), "MODULE$")
        changes = reader.changesToBatchDF(
            log, first + 1, last, jvm.jsession, jvm.none, jvm.some(snapshot), True, jvm.none
        )
    except (Py4JError, TypeError) as error:
        raise ChangesUnavailableError(f"Delta does not give its changes ({type(error).__name__})") from error
    rows = DataFrame(changes, session)
    return rows.select(*(col(name) for name in columns), (F.col(_KIND) == "insert").alias(CAME))
