"""Spark's own plans and expressions over py4j: the session's JVM, and conversions of Scala's sequences.

The questions are in `lakeproof.views.incremental.plan_trees` and `lakeproof.proof.lake.jvm_functions`. No name inside Delta
is used, and nothing here evaluates rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyspark.sql import SparkSession


class Jvm:
    """The session's JVM."""

    def __init__(self, session: SparkSession) -> None:
        self.java = cast("Any", session._jvm)
        self.jsession = cast("Any", session._jsparkSession)
        self.none = self.java.scala.Option.empty()
        # Spark asks for the thread's own session in many places; each Python thread has a JVM thread.
        self.java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.jsession)

    def seq(self, values: Iterable[Any]) -> Any:
        """Scala's Seq."""
        items = self.java.java.util.ArrayList()
        for value in values:
            items.add(value)
        return self.java.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()

    def items(self, seq: Any) -> list[Any]:
        """Return a Scala Seq's items."""
        return list(self.java.scala.jdk.javaapi.CollectionConverters.asJava(seq))
