"""Refusing data in the middle of a Spark plan, and telling such a refusal from any other failure.

Which data are refused belongs to the modules that compute with them.

A check that needed its own Spark job would cost as much as the work it guards, so checks are expressions that raise: the
first commit that would contain a wrong row fails before it commits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError, TableError
from lakeproof.lake.records.documents import RESNAPSHOT

_MARK = re.compile(r"\[lp-(table|invariant)\|([^|\]]*)\|([^|\]]*)\]")


def refuse_table(reason: str | SparkColumn, spark_type: str, remedy: str = RESNAPSHOT) -> SparkColumn:
    """An expression that ends the query: this table's data can't be applied. `spark_type` is what stands around it.

    Neither reason nor remedy may have a `|` or `]` in it.
    """
    return _raise("table", F.lit(reason), remedy, spark_type)


def refuse_invariant(reason: str, spark_type: str) -> SparkColumn:
    """An expression that ends the query: the stream is not what PostgreSQL promises, or we are wrong."""
    return _raise("invariant", F.lit(reason), "report this", spark_type)


@contextmanager
def refusals(thing: str) -> Iterator[None]:
    """Turn a refusal that surfaces in the block into TableError or InvariantError about `thing`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _MARK.search(str(error))
        if found is None:
            raise
        kind = TableError if found[1] == "table" else InvariantError
        raise kind(thing, found[2], found[3]) from None


def _raise(kind: str, reason: SparkColumn, remedy: str, spark_type: str) -> SparkColumn:
    told = F.concat(F.lit(f"[lp-{kind}|"), reason, F.lit(f"|{remedy}]"))
    return F.raise_error(told).cast(spark_type)
