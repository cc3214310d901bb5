"""The classes of Spark's and its JVM's errors: none, as long as this process has not imported Spark.

The meaning of an error is in `failures.py`. An installation without Spark, and a command that needs none, ask here in an
`except` clause: it is evaluated only if something was raised.
"""

from __future__ import annotations

import sys
from typing import TypeAlias

Classes: TypeAlias = tuple[type[BaseException], ...]


def spark_errors(*others: type[BaseException]) -> Classes:
    """Return the classes of all errors of Spark and its JVM, and these `others`."""
    if "pyspark" not in sys.modules:
        return others
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, *others)


def java_errors(*others: type[BaseException]) -> Classes:
    """Return the classes of errors that come out of the JVM, and these `others`."""
    if "pyspark" not in sys.modules:
        return others
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JJavaError, *others)


def connection_errors(*others: type[BaseException]) -> Classes:
    """Return the classes of errors of the connection to the JVM, and these `others`."""
    if "pyspark" not in sys.modules:
        return others
    from py4j.protocol import Py4JNetworkError

    return (Py4JNetworkError, *others)
