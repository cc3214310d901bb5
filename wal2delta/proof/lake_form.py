"""The lake's side of a proof: buckets and keys of one current table at one Delta version, by Spark.

Which version belongs to the position is the cut's to say; comparing belongs to `wal2delta.proof.compare`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wal2delta.lake.columns import col
from wal2delta.lake.exact import (
    TEXT_COLUMN,
    digest_bits,
    exact_form,
    exact_text,
    key_columns,
    row_digest,
    row_forms,
    whole_key,
)
from wal2delta.proof.compare import Bucket, Buckets, ProofRow
from wal2delta.schema import SchemaVersion

_HALF = 30  # bits of a hash in each of its two sums


def read_current(spark: SparkSession, path: str, delta_version: int) -> DataFrame:
    """A current table with its hidden columns, exactly as that version of it is."""
    return spark.read.format("delta").option("versionAsOf", delta_version).load(path)


def lake_buckets(current: DataFrame, version: SchemaVersion, buckets: int) -> Buckets:
    """The count of rows and the sum of their hashes in each bucket that has rows."""
    hashed = current.select(_bucket(version, buckets).alias("bucket"), _hash(version).alias("hash"))
    # Two sums of longs: one of decimals takes a third of the whole time.
    low, high = F.col("hash").bitwiseAND(F.lit((1 << _HALF) - 1)), F.shiftright(F.col("hash"), _HALF)
    sums = hashed.groupBy("bucket").agg(F.count("*"), F.sum(low), F.sum(high))
    return {
        int(b): Bucket(rows=int(n), total=(int(upper) << _HALF) + int(lower)) for b, n, lower, upper in sums.collect()
    }


def lake_rows(current: DataFrame, version: SchemaVersion, buckets: int, wanted: Sequence[int]) -> Iterator[ProofRow]:
    """The rows of the `wanted` buckets, as their hash and the exact texts of their key's columns."""
    texts = [exact_text(c, c.name, TEXT_COLUMN) for c in key_columns(version)]
    # Hidden names, since a table may have columns of any visible name.
    chosen = current.where(_bucket(version, buckets).isin(list(wanted))).select(
        _hash(version).alias("_w2d_hash"), *(t.alias(f"_w2d_key_{i}") for i, t in enumerate(texts))
    )
    for row in chosen.toLocalIterator():
        yield ProofRow(hash=int(row[0]), key=tuple(row[1:]))


def _bucket(version: SchemaVersion, buckets: int) -> Column:
    if version.is_bag:
        return digest_bits(row_digest(row_forms(version))) % F.lit(buckets)
    number = whole_key(version)
    if number is not None:
        return F.pmod(F.coalesce(col(number.name).cast("bigint"), F.lit(0)), F.lit(buckets))
    return digest_bits(row_digest([exact_form(c, c.name) for c in key_columns(version)])) % F.lit(buckets)


def _hash(version: SchemaVersion) -> Column:
    return digest_bits(row_digest(row_forms(version)))
