"""The lake's side of a proof: buckets and keys of one current table at one Delta version, by Spark.

The text of a row is `exact.row_forms` with one exception: in a table with a key, an instant that is typed in the lake is
written as its microseconds since 2000 in 16 hexadecimal digits, PostgreSQL's own octets of it. Formatting timestamps took
20 % of Spark's time. Rows of tables without a key are identified by the stored digests, so they keep the text form.
Measured on 3 M rows of 8 columns, CPU: 10.5 s by public functions and texts, 5.7 s by numbers for instants and
`jvm_functions` for floats, 4.1 s by these for the hash too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import scratch
from lakeproof.lake.columns import quoted
from lakeproof.lake.rows.columns import (
    col,
    digest_bits,
    ended_form,
    exact_form,
    exact_text,
    row_digest,
    row_forms,
)
from lakeproof.proof.compare import Bucket, Buckets, ProofRow
from lakeproof.proof.lake.jvm_functions import JvmFunctions, jvm_functions
from lakeproof.schema import Column as TableColumn
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import is_ended, key_columns, whole_key
from lakeproof.values.types import Form, kind_of

_BUCKET = scratch("bucket")
_HASH = scratch("hash")

_HALF = 30  # bits of a hash in each of its two sums
_SECOND, _DAY = 1_000_000, 86_400_000_000  # microseconds
_MICROS_TO_2000 = 10_957 * _DAY


def lake_buckets(current: DataFrame, version: SchemaVersion, buckets: int) -> Buckets:
    """The count of rows and the sum of their hashes in each bucket that has rows."""
    functions = jvm_functions(current.sparkSession)
    hashed = current.select(
        _bucket(version, buckets, functions).alias("bucket"), _hash(version, functions).alias("hash")
    )
    # Two sums of longs: one of decimals takes a third of the whole time.
    low, high = F.col("hash").bitwiseAND(F.lit((1 << _HALF) - 1)), F.shiftright(F.col("hash"), _HALF)
    sums = hashed.groupBy("bucket").agg(F.count("*"), F.sum(low), F.sum(high))
    return {
        int(b): Bucket(rows=int(n), total=(int(upper) << _HALF) + int(lower)) for b, n, lower, upper in sums.collect()
    }


def lake_rows(
    current: DataFrame, version: SchemaVersion, buckets: int, chosen_buckets: Sequence[int]
) -> Iterator[tuple[int, ProofRow]]:
    """Each row of the `chosen_buckets` with its bucket, in their order: its hash and the exact texts of its key."""
    functions = jvm_functions(current.sparkSession)
    texts = [exact_text(c) for c in key_columns(version)]
    # Hidden names, since a table may have columns of any visible name.
    bucket = _bucket(version, buckets, functions)
    chosen = current.where(bucket.isin(list(chosen_buckets))).select(
        bucket.alias(_BUCKET),
        _hash(version, functions).alias(_HASH),
        *(t.alias(scratch(f"key_{i}")) for i, t in enumerate(texts)),
    )
    for row in chosen.orderBy(_BUCKET).toLocalIterator():
        yield int(row[0]), ProofRow(hash=int(row[1]), key=tuple(row[2:]))


def proof_forms(version: SchemaVersion, functions: JvmFunctions | None) -> list[Column]:
    """The forms of a row's values in a proof; with `functions` the same ones, at less cost."""
    if version.is_bag:
        return row_forms(version)
    return [_form(column, functions) for column in version.columns]


def _form(column: TableColumn, functions: JvmFunctions | None) -> Column:
    value, kind = col(column.name), kind_of(column)
    if functions is not None and kind.form is Form.FLOAT and kind.element is None:
        return ended_form(column, typed=functions.float_text(column.kind, value))
    if kind.source_octets is not None and kind.form is Form.INSTANT:
        return ended_form(column, typed=_instant_text(F.unix_micros(value)))
    if kind.source_octets is not None:
        micros = _clock_micros(column.name) if functions is None else functions.clock_micros(value)
        return ended_form(column, typed=_instant_text(micros))
    return ended_form(column) if is_ended(column) else exact_form(column)


def _clock_micros(name: str) -> Column:
    """Microseconds since 1970 of a time without zone: `timestampdiff` would put it into the session's."""
    x = quoted(name)
    day = f"unix_date(cast({x} as date)) * {_DAY}"
    time = f"(hour({x}) * 60L + minute({x})) * {60 * _SECOND} + cast(extract(SECOND FROM {x}) * {_SECOND} as bigint)"
    return F.expr(f"{day} + {time}")


def _instant_text(micros: Column) -> Column:
    """Its 16 hexadecimal digits. Of the years 2008 to 2142 the first three are 0, and `lpad` costs as much as the rest."""
    since_2000 = micros - F.lit(_MICROS_TO_2000)
    digits = F.lower(F.hex(since_2000))
    usual = (since_2000 >= 1 << 48) & (since_2000 < 1 << 52)
    return F.when(usual, F.concat(F.lit("000"), digits)).otherwise(F.lpad(digits, 16, "0"))


def _bucket(version: SchemaVersion, buckets: int, functions: JvmFunctions | None) -> Column:
    if version.is_bag:
        return _hash(version, functions) % F.lit(buckets)
    number = whole_key(version)
    if number is not None:
        return F.pmod(F.coalesce(col(number.name).cast("bigint"), F.lit(0)), F.lit(buckets))
    return digest_bits(row_digest([exact_form(c) for c in key_columns(version)])) % F.lit(buckets)


def _hash(version: SchemaVersion, functions: JvmFunctions | None) -> Column:
    forms = proof_forms(version, functions)
    if functions is None:
        return digest_bits(row_digest(forms))
    return functions.text_bits(F.concat(*forms) if forms else F.lit(""))
