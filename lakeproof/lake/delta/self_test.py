"""Whether this JVM's Delta is the one that names inside it belong to."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakeproof.lake.delta.jvm import DELTA_VERSION, delta_version


def other_version(session: SparkSession) -> str | None:
    """Return why this JVM's Delta is not the one that the names belong to, None if it is.

    That is enough for who finds in the log whether the commit is the one that was meant.
    """
    version = delta_version(session)
    return None if version == DELTA_VERSION else f"Delta {version} is not {DELTA_VERSION}"


known_reason = other_version
