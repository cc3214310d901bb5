"""The gate before all names inside Delta: the one version that they belong to, and a try on a scratch table.

Using the names belongs to `jvm`, `vectors`, `optimize` and `schema`; what replaces them belongs to those who ask here.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import InvariantError, LakeError
from lakeproof.lake.delta.commit import CommitInfo, CommitRequest, Hints, TableSpec
from lakeproof.lake.delta.jvm import DELTA_VERSION, delta_version
from lakeproof.lake.delta.vectors import Unsupported, find_rows, write_with_deletion_vectors
from lakeproof.lake.rows.change import NetChange

_lock = threading.Lock()
# One entry per Spark application that this process has had: the reason, or None.
_reasons: dict[str, str | None] = {}


def unsupported_reason(session: SparkSession) -> str | None:
    """Return why names inside Delta can't be used in this session's JVM, None if they can; tried once per JVM."""
    application = str(session.sparkContext.applicationId)
    with _lock:
        if application not in _reasons:
            _reasons[application] = _try(session.newSession())
        return _reasons[application]


def supported(session: SparkSession) -> bool:
    """True if names inside Delta can be used in this session's JVM."""
    return unsupported_reason(session) is None


def check_supported(session: SparkSession, path: str) -> None:
    """Raise LakeError about the table at `path` if names inside Delta can't be used; for work that has no other way."""
    reason = unsupported_reason(session)
    if reason is not None:
        raise LakeError(
            path,
            f"its columns can't be changed with this Delta: {reason}",
            f"install Delta {DELTA_VERSION}, then run it again",
        )


def _try(session: SparkSession) -> str | None:
    try:
        version = delta_version(session)
        if version != DELTA_VERSION:
            return f"Delta {version} is not {DELTA_VERSION}"
        with tempfile.TemporaryDirectory(prefix="lakeproof-try-") as folder:
            return _on_a_scratch_table(session, str(Path(folder) / "table"))
    except (Unsupported, InvariantError, Py4JError, PySparkException, TypeError) as error:
        return f"the try on a scratch table failed ({type(error).__name__})"


def _on_a_scratch_table(session: SparkSession, path: str) -> str | None:
    """Make two commits: rows of one file are deleted in both, so that a vector is added to; another file goes whole."""
    rows = session.range(0, 8, 1, 2).selectExpr("id", "concat('v', id) AS v")
    rows.write.format("delta").options(**TableSpec().options(rows.columns)).save(path)
    for number, gone in ((1, (0, 4, 5)), (2, (1, 6, 7))):
        deletes = session.createDataFrame([(g,) for g in gone], "id bigint")
        images = session.createDataFrame([(gone[0], f"n{number}")], "id bigint, v string")
        info = CommitInfo("try", number, "{}")
        request = CommitRequest(path, NetChange(("id",), deletes, images), info, Hints(max_keys=len(gone)))
        write_with_deletion_vectors(find_rows(session, request, number - 1), info)
    left = session.read.format("delta").load(path).collect()
    expected = {(0, "n1"), (1, "n2"), (2, "v2"), (3, "v3")}
    return None if {(r[0], r[1]) for r in left} == expected and len(left) == len(expected) else "a wrong result"
