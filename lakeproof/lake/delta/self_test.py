"""Whether the fast make may be used in this JVM: the one version of Delta it was written for, and a try on a scratch table.

The make itself is `by_vectors`; what is used instead belongs to `apply`.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import InvariantError
from lakeproof.lake.delta.commit import Change, CommitInfo, TableSpec
from lakeproof.lake.delta.jvm import DELTA_VERSION, delta_version
from lakeproof.lake.delta.vectors import Unfit, find_rows

_lock = threading.Lock()
# One entry per Spark application that this process has had; the reason why not, or None.
_known: dict[str, str | None] = {}


def why_not(session: SparkSession) -> str | None:
    """Why the fast make can't be used in this session's JVM, None where it can; tried once per JVM."""
    application = str(session.sparkContext.applicationId)
    with _lock:
        if application not in _known:
            _known[application] = _try(session.newSession())
        return _known[application]


def _try(session: SparkSession) -> str | None:
    try:
        found = delta_version(session)
        if found != DELTA_VERSION:
            return f"Delta {found} is not {DELTA_VERSION}"
        with tempfile.TemporaryDirectory(prefix="lakeproof-try-") as folder:
            return _on_a_scratch_table(session, str(Path(folder) / "table"))
    except (Unfit, InvariantError, Py4JError, PySparkException, TypeError) as error:
        return f"the try on a scratch table failed ({type(error).__name__})"


def _on_a_scratch_table(session: SparkSession, path: str) -> str | None:
    """Two commits: rows of one file go twice, so that a vector is added to; another file goes whole."""
    rows = session.range(0, 8, 1, 2).selectExpr("id", "concat('v', id) AS v")
    rows.write.format("delta").options(**TableSpec().options(rows.columns)).save(path)
    for number, gone in ((1, (0, 4, 5)), (2, (1, 6, 7))):
        deletes = session.createDataFrame([(g,) for g in gone], "id bigint")
        images = session.createDataFrame([(gone[0], f"n{number}")], "id bigint, v string")
        change = Change(("id",), deletes, images, keys_max=len(gone))
        find_rows(session, path, change, number - 1).commit(CommitInfo("try", number, "{}"))
    left = session.read.format("delta").load(path).collect()
    expected = {(0, "n1"), (1, "n2"), (2, "v2"), (3, "v3")}
    return None if {(r[0], r[1]) for r in left} == expected and len(left) == len(expected) else "a wrong result"
