"""Functions of Spark's JVM that its SQL lacks: a float's bits, and the first bits of a digest as a number.

Choosing what to hash belongs to the callers, and so does the slower way if these names don't work.

These are internal names over py4j, as in `lake.spark.jvm`; so they are tried once per JVM, against Spark's public
functions.
"""

from __future__ import annotations

import threading
from typing import cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.classic.column import Column as ClassicColumn

from lakeproof.lake.rows.columns import digest_bits, typed_text
from lakeproof.lake.spark.jvm import Jvm

_lock = threading.Lock()
# One entry per JVM that this process has had, by its gateway, which outlives each session; None where the functions can't
# be used.
_functions: dict[object, JvmFunctions | None] = {}
_TRIED = (
    "'NaN', '-0.0', '0.0', 'Infinity', '-Infinity', '4.9E-324', '-2.5E-310', '1.4E-45', '0.1', '-3.4E38', '1.7E308'"
)


class JvmFunctions:
    """Columns made by static methods of the JVM; they are generated code, like Spark's own functions."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm = Jvm(session)

    def float_text(self, kind: str, value: Column) -> Column:
        """The hexadecimal digits of a float4's or float8's bits, as `exact` has them; null for null."""
        if kind == "float4":
            bits = self._static("java.lang.Float", "floatToIntBits", value, T.FloatType(), T.IntegerType())
            return _hex(bits.cast("bigint").bitwiseAND(F.lit(0xFFFFFFFF)), 8)
        return _hex(self._static("java.lang.Double", "doubleToLongBits", value, T.DoubleType(), T.LongType()), 16)

    def text_bits(self, text: Column) -> Column:
        """The first 60 bits of a text's MD5 as a long."""
        octets, digests = T.BinaryType(), "org.apache.commons.codec.digest.DigestUtils"
        digest = self._static(digests, "md5", text.cast("binary"), octets, octets)
        prefix = self._static("org.apache.spark.unsafe.types.ByteArray", "getPrefix", digest, octets, T.LongType())
        return F.shiftrightunsigned(prefix, 4)

    def clock_micros(self, value: Column) -> Column:
        """A time without zone as its microseconds since 1970."""
        catalyst = self._jvm.java.org.apache.spark.sql.catalyst.expressions
        return self._column(
            catalyst.PreciseTimestampConversion(
                self._expression(value), self._type(T.TimestampNTZType()), self._type(T.LongType())
            )
        )

    def _static(self, name: str, method: str, value: Column, takes: T.DataType, gives: T.DataType) -> Column:
        call = self._jvm.java.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
            self._jvm.java.java.lang.Class.forName(name),
            self._type(gives),
            method,
            self._jvm.seq([self._expression(value)]),
            self._jvm.seq([self._type(takes)]),
            True,
            True,
            True,
            self._jvm.none,
        )
        return self._column(call)

    def _expression(self, value: Column) -> object:
        return self._jvm.java.org.apache.spark.sql.classic.ExpressionUtils.expression(cast("ClassicColumn", value)._jc)

    def _column(self, expression: object) -> Column:
        return ClassicColumn(self._jvm.java.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    def _type(self, data_type: T.DataType) -> object:
        return self._jvm.java.org.apache.spark.sql.types.DataType.fromJson(data_type.json())


def jvm_functions(session: SparkSession) -> JvmFunctions | None:
    """Return the functions if they work as they should in this session's JVM, else None; tried once per JVM."""
    gateway = session.sparkContext._gateway
    with _lock:
        if gateway not in _functions:
            _functions[gateway] = _tried(session)
        return _functions[gateway]


def _tried(session: SparkSession) -> JvmFunctions | None:
    texts = session.range(0, 1, 1, 1).selectExpr(f"explode(array({_TRIED}, null)) AS t")
    clock = "timestampadd(MICROSECOND, 3, TIMESTAMP_NTZ'0001-01-01 00:00:00') AS clock"
    rows = texts.selectExpr("t", "cast(t AS double) AS float8", "cast(t AS float) AS float4", clock)
    try:
        functions = JvmFunctions(session)
        pairs = [
            (functions.float_text(kind, F.col(kind)), F.expr(typed_text(kind, kind))) for kind in ("float4", "float8")
        ]
        pairs.append((functions.text_bits(F.col("t")), digest_bits(F.md5("t"))))
        pairs.append((functions.clock_micros(F.col("clock")), F.lit(-62_135_596_799_999_997)))
        wrong = rows.where(~_all_same(pairs)).count()
    except (Py4JError, PySparkException, TypeError):
        return None
    return None if wrong else functions


def _all_same(pairs: list[tuple[Column, Column]]) -> Column:
    same = F.lit(True)
    for ours, theirs in pairs:
        same &= ours.eqNullSafe(theirs)
    return same


def _hex(bits: Column, digits: int) -> Column:
    """Hexadecimal digits in lower case. Padding costs as much as all the rest, and few values need it."""
    text = F.lower(F.hex(bits))
    full = (bits < 0) | (bits >= 1 << (digits * 4 - 4))
    return F.when(full, text).otherwise(F.lpad(text, digits, "0"))
