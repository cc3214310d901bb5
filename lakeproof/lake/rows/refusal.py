"""Refusing data in the middle of a Spark plan, and distinguishing such a refusal from any other failure.

Deciding which data to refuse belongs to the modules that compute with them.

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

from lakeproof.errors import InvariantError
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut

_MARK = re.compile(r"\[lp-(table|invariant)\|([^|\]]*)\|([^|\]]*)\]")


def refuse_table(reason: str | SparkColumn, spark_type: str, way_out: WayOut = WayOut.SNAPSHOT) -> SparkColumn:
    """Return an expression that ends the query: this table's data can't be applied. `spark_type`: the expression's type.

    The reason may contain no `|` or `]`.
    """
    return _raise("table", F.lit(reason), way_out.value, spark_type)


def refuse_invariant(reason: str, spark_type: str) -> SparkColumn:
    """Return an expression that ends the query: the stream is not what PostgreSQL promises, or we are wrong."""
    return _raise("invariant", F.lit(reason), "", spark_type)


@contextmanager
def refusals_as_errors(thing: str) -> Iterator[None]:
    """Turn a refusal that surfaces in the block into TableHeldError or InvariantError about `thing`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        refusal = _MARK.search(str(error))
        if refusal is None:
            raise
        if refusal[1] == "invariant":
            raise InvariantError(thing, refusal[2], "report this") from None
        way_out = WayOut(refusal[3])
        if way_out is WayOut.OTHER_KEY_THEN_SNAPSHOT:
            raise TableHeldError(thing, HeldCause.KEY_NOT_UNIQUE, way_out) from None
        raise TableHeldError(thing, HeldCause.DATA_REFUSED, way_out, {"problem": refusal[2]}) from None


def _raise(kind: str, reason: SparkColumn, way_out: str, spark_type: str) -> SparkColumn:
    message = F.concat(F.lit(f"[lp-{kind}|"), reason, F.lit(f"|{way_out}]"))
    return F.raise_error(message).cast(spark_type)
