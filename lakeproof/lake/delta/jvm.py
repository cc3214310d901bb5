"""Names inside Delta, called over py4j: a transaction's files, deletion vectors, and its one commit.

Finding the rows to delete belongs to `vectors`; checking that these names can be used at all to `self_test`.

The names are public in bytecode and internal by contract: the signatures are those of exactly `DELTA_VERSION`, and Scala's
default arguments do not exist for py4j. Nothing here evaluates a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pyspark.sql import SparkSession

DELTA_VERSION = "4.4.0"
# A file's bitmap is passed to the JVM as bytes; a call for each row would cost 0.1 ms.
_BIG_ENDIAN_LONG = ">i8"


class Jvm:
    """The session's JVM, with conversions of Python's values to Scala's."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.java = cast("Any", session._jvm)
        self.jsession = cast("Any", session._jsparkSession)
        self.delta = self.java.org.apache.spark.sql.delta
        self.none = self.java.scala.Option.empty()
        # Delta asks for the thread's own session in many places; each Python thread has a JVM thread.
        self.java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.jsession)

    def some(self, value: object) -> Any:
        """Scala's Some."""
        return self.java.scala.Option.apply(value)

    def seq(self, values: Iterable[Any]) -> Any:
        """Scala's Seq."""
        items = self.java.java.util.ArrayList()
        for value in values:
            items.add(value)
        return self.java.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()

    def items(self, seq: Any) -> list[Any]:
        """Return a Scala Seq's items."""
        return list(self.java.scala.jdk.javaapi.CollectionConverters.asJava(seq))

    def mapping(self, values: Mapping[str, Any]) -> Any:
        """Scala's immutable Map."""
        entries = self.java.java.util.HashMap()
        for key, value in values.items():
            entries.put(key, value)
        empty = getattr(self.java.scala.collection.immutable, "Map$")
        return getattr(empty.__getattr__("MODULE$"), "from")(
            self.java.scala.jdk.javaapi.CollectionConverters.asScala(entries)
        )


def delta_version(session: SparkSession) -> str:
    """Return the version of the Delta jar in the session's JVM."""
    return str(Jvm(session).java.io.delta.package.VERSION())
