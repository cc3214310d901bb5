"""The gate before all names inside Delta: the one version that they belong to, and a try on a scratch table.

Using the names belongs to `jvm`, `vectors` and `optimize`; what replaces them belongs to those who ask here.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import InvariantError
from lakeproof.lake.delta.commit import CommitInfo, CommitRequest, Hints, TableSpec, Unsupported
from lakeproof.lake.delta.jvm import DELTA_VERSION, delta_version, forget
from lakeproof.lake.delta.log_restart import remove_place
from lakeproof.lake.delta.vectors import find_rows, write_with_deletion_vectors
from lakeproof.lake.rows.change import NetChange

_lock = threading.Lock()
# One entry per JVM that this process has had, by its gateway, which outlives each session: the reason, or None.
_reasons: dict[Any, str | None] = {}


def unsupported_reason(session: SparkSession, path: str) -> str | None:
    """Return why names inside Delta can't be used in this session's JVM, None if they can; tried once per JVM.

    The scratch table is below the table at `path`, where the tasks of a cluster can write, too.
    """
    gateway = session.sparkContext._gateway  # noqa: SLF001  no public name for the JVM
    with _lock:
        if gateway not in _reasons:
            _reasons[gateway] = _try(session.newSession(), path)
        return _reasons[gateway]


def known_reason(session: SparkSession) -> str | None:
    """Return the same as far as it is known without a try, which takes a cold JVM ten seconds."""
    return _reasons.get(session.sparkContext._gateway) or other_version(session)  # noqa: SLF001  as above


def other_version(session: SparkSession) -> str | None:
    """Return why this JVM's Delta is not the one that the names belong to, None if it is.

    That is enough for who finds in the log whether the commit is the one that was meant.
    """
    version = delta_version(session)
    return None if version == DELTA_VERSION else f"Delta {version} is not {DELTA_VERSION}"


def supported(session: SparkSession, path: str) -> bool:
    """True if names inside Delta can be used in this session's JVM; `path` as elsewhere."""
    return unsupported_reason(session, path) is None


def _try(session: SparkSession, path: str) -> str | None:
    try:
        reason = other_version(session)
        if reason is not None:
            return reason
        # A name that begins with `_` is nothing to Delta; maintenance removes what a killed process leaves.
        scratch = f"{path}/_try-{uuid.uuid4().hex}"
        try:
            return _on_a_scratch_table(session, scratch)
        finally:
            forget(session, scratch)
            remove_place(scratch)
    except (Unsupported, InvariantError, Py4JError, PySparkException, TypeError) as error:
        return f"the try on a scratch table failed ({type(error).__name__})"


def _on_a_scratch_table(session: SparkSession, path: str) -> str | None:
    """Make two commits: rows of one file are deleted in both, so that a vector is added to; another file goes whole."""
    rows = session.range(0, 8, 1, 2).selectExpr("id", "concat('v', id) AS v")
    rows.write.format("delta").options(**TableSpec().options(rows.columns)).save(path)
    for number, gone in ((1, (0, 4, 5)), (2, (1, 6, 7))):
        # Rows that the driver holds, as a cycle's are: a list would be a job in each use.
        deletes = session.createDataFrame(pa.table({"id": gone}))
        images = session.createDataFrame(pa.table({"id": [gone[0]], "v": [f"n{number}"]}))
        info = CommitInfo("try", number, "{}")
        request = CommitRequest(path, NetChange(("id",), deletes, images), info, Hints(max_keys=len(gone)))
        write_with_deletion_vectors(find_rows(session, request, number - 1), info)
    left = session.read.format("delta").load(path).collect()
    expected = {(0, "n1"), (1, "n2"), (2, "v2"), (3, "v3")}
    return None if {(r[0], r[1]) for r in left} == expected and len(left) == len(expected) else "a wrong result"
