"""The fast make of the one commit: rows go by deletion vectors, rows that come are files, and one commit has them all.

    keys of the change ─► scan of the key columns alone, with file and row number ─► bitmaps per file ┐
    images ─► data files ─────────────────────────────────────────────────────────────────────────────┴─► one commit

When it is taken belongs to `apply`; the names inside Delta to `delta_jvm`; the portable make is `by_merge`.

Cost: two Spark jobs where MERGE has nineteen (one where nothing goes: Delta's own append looks for its transaction's number,
and rebuilds the table's state for it), none of them over the table's log as long as the version's checksum file lists the
data files. Few keys stand in the scan as literals, more are sent to every task; of a whole number's bounds or
literals Parquet reads only the row groups they lie in, and files whose statistics exclude them are not opened.

Known weakness: it needs names that Delta does not promise, hence `Unfit` for every table whose features were not tried, and
`vectors_check` before the first use in a JVM.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.commit import Change, CommitInfo
from lakeproof.lake.delta.jvm import TableFile, Transaction
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.preconditions import FIRST, check_firsts, met

# Up to here keys are literals of the scan; 1,000 took longer to plan than a join.
LITERAL_KEYS_MAX = 400
LITERAL_BYTES_MAX = 1 << 20
# Above, the keys that are sent to every task, and the places that come to the driver (100 bytes each), are too many.
KEYS_MAX = 1_000_000
KEYS_BYTES_MAX = 64 << 20
# Each costs some calls into the JVM (0.3 ms); a table with more is one whose small files wait for OPTIMIZE.
FILES_MAX = 5_000
# The features under which the conformance suite has run.
_KNOWN_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
    }
)
_PATH, _ROW, _KEY = "_lp_path", "_lp_at", "_lp_hit"
_NO_HITS = pa.table({_PATH: pa.array([], pa.string()), _ROW: pa.array([], pa.int64()), FIRST: pa.array([], pa.int64())})
Rows: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class Unfit(Exception):  # noqa: N818  not an error: the portable make takes over
    """A table or change that is not for this make; nothing has been written."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """A transaction with the places of the rows that go (file → numbers), found among the `files`."""

    txn: Transaction
    images: DataFrame | None
    files: Sequence[TableFile]
    places: Mapping[str, Rows] | None

    def commit(self, info: CommitInfo) -> None:
        """Write the rows that come, and commit; nothing where nothing goes or comes."""
        txn, images = self.txn, self.images
        if self.places is None:
            if images is not None and txn.add_rows(images):
                failpoint("apply.before_commit")
                txn.commit_append(info.app_id, info.number, info.user_metadata)
            return
        deleted = txn.remove_rows(self.places, self.files)
        inserted = 0 if images is None else txn.add_rows(images)
        if not txn.is_empty:
            failpoint("apply.before_commit")
            txn.commit(info.app_id, info.number, inserted=inserted, deleted=deleted)


def find_rows(session: SparkSession, path: str, change: Change, before: int) -> FoundRows:
    """Find on version `before` what goes. Raises `Unfit`, and DriftedError where that is not what the change presupposes."""
    if change.deletes is not None and (change.keys_max is None or change.keys_max > KEYS_MAX):
        raise Unfit(f"more than {KEYS_MAX:,} keys, or nobody knows how many")
    txn = Transaction(session, path)
    if txn.version != before:
        raise Unfit("another version is the newest")  # who wrote it is found out by the caller
    images = _fitting(txn, change)
    if change.deletes is None:
        txn.read_all(())
        return FoundRows(txn, images, (), None)
    files = txn.files()
    keys = _literals(change, change.deletes)
    if keys is None and not _keys_fit(change, change.deletes):
        raise Unfit(f"its keys are more than {KEYS_BYTES_MAX >> 20} MiB")
    near = [f for f in files if _may_hold(f, txn, change, keys)]
    txn.read_all(files)
    hits = _hits(txn.frame(near), change, change.deletes, keys) if near else _NO_HITS
    if change.presupposed is not None:
        check_firsts(path, hits.column(FIRST), change.presupposed)
    return FoundRows(txn, images, near, _by_file(hits))


def is_known(txn: Transaction) -> bool:
    """Whether the table is of the kind that was tried: no partitions, no feature beyond those."""
    return not txn.is_partitioned and txn.features <= _KNOWN_FEATURES


def _fitting(txn: Transaction, change: Change) -> DataFrame | None:
    """The images in the table's order of columns; raises `Unfit` for what this make was not tried with."""
    if not is_known(txn):
        others = ", ".join(sorted(txn.features - _KNOWN_FEATURES))
        raise Unfit(f"the table has features that were not tried: {others}" if others else "the table has partitions")
    if not txn.has_property("delta.enableDeletionVectors", "true"):
        raise Unfit("the table has no delta.enableDeletionVectors")
    if txn.file_count > FILES_MAX:
        raise Unfit(f"the table has {txn.file_count:,} files, more than {FILES_MAX:,}")
    images = change.images
    if images is None:
        return None
    wanted = {f["name"]: T._parse_datatype_json_value(f["type"]) for f in txn.fields}  # noqa: SLF001  Delta's schema is Spark's
    # Columns that were put away have no value in new rows.
    away = {n: F.lit(None).cast(t).alias(n) for n, t in wanted.items() if n.startswith(PUT_AWAY)}
    if away:
        images = images.select("*", *(value for name, value in away.items() if name not in images.columns))
    given = {f.name: f.dataType for f in images.schema.fields}
    if {n: t.simpleString() for n, t in wanted.items()} != {n: t.simpleString() for n, t in given.items()}:
        raise Unfit("the columns of the change are not quite the table's")  # MERGE casts
    return pick(images, wanted)


def _literals(change: Change, deletes: DataFrame) -> dict[Any, int | None] | None:
    """The values of a single key column where they are few, in order, NULL last, with their `_lp_first`; None otherwise."""
    if len(change.key) != 1 or change.keys_max is None or change.keys_max > LITERAL_KEYS_MAX:
        return None
    field = deletes.schema[change.key[0]]
    if not isinstance(field.dataType, T.IntegralType | T.StringType | T.BinaryType):
        return None
    # A key that a person configured has no index that would bound it: a large one is not brought here.
    key = col(field.name)
    is_wide = isinstance(field.dataType, T.StringType | T.BinaryType)
    large = F.octet_length(key) > LITERAL_BYTES_MAX // LITERAL_KEYS_MAX if is_wide else F.lit(False)
    large = F.coalesce(large, F.lit(False))
    # Not by Arrow: what the driver holds is then collected without a job.
    first = F.lit(None) if change.presupposed is None else col(FIRST)
    rows = deletes.select(F.when(~large, key), large, first).collect()
    if any(row[1] for row in rows):
        return None
    values = {bytes(k) if isinstance(k, bytearray) else k: number for k, _, number in rows}
    return {k: values[k] for k in [*sorted(v for v in values if v is not None), *([None] if None in values else [])]}


def _keys_fit(change: Change, deletes: DataFrame) -> bool:
    """Whether the keys are few enough bytes for every task; a job where they are texts that the driver does not hold."""
    wide = [k for k in change.key if isinstance(deletes.schema[k].dataType, T.StringType | T.BinaryType)]
    if not wide or deletes._jdf.queryExecution().optimizedPlan().nodeName() == "LocalRelation":  # noqa: SLF001  no public name for the plan
        return True
    size = deletes.select(sum((F.coalesce(F.octet_length(col(k)), F.lit(0)) for k in wide), F.lit(0)).alias("size"))
    total = size.agg(F.sum(F.col("size").cast("bigint"))).collect()[0][0]
    return total is None or int(total) <= KEYS_BYTES_MAX


def _may_hold(file: TableFile, txn: Transaction, change: Change, keys: Iterable[Any] | None) -> bool:
    """Whether a file may have one of the keys, by its statistics; those of texts are cut short, so of whole numbers only."""
    known = [k for k in keys or () if k is not None]
    whole = bool(known) and None not in (keys or ()) and isinstance(known[0], int)
    if (change.bounds is None and not whole) or change.null_safe:
        return True
    found = file.key_range(txn.physical(change.key[0]))
    if found is None:
        return True
    low, high = found
    if change.bounds is not None and (high < change.bounds[0] or low > change.bounds[1]):
        return False
    at = bisect_left(known, low) if whole else 0
    return not whole or (at < len(known) and known[at] <= high)


def _hits(rows: DataFrame, change: Change, deletes: DataFrame, keys: Mapping[Any, int | None] | None) -> pa.Table:
    """The places of the rows that have one of the keys, with the key's `_lp_first`. One job."""
    if change.bounds is not None and not change.null_safe:
        rows = rows.where(col(change.key[0]).between(*change.bounds))
    # A view may have a column of that name.
    metadata = rows.metadataColumn("_metadata")
    placed = [metadata.getField("file_path").alias(_PATH), metadata.getField("row_index").alias(_ROW)]
    if keys is None:
        rows = rows.select(*(col(k) for k in change.key), *placed)
        once = change.presupposed is not None
        hits = met(rows, F.broadcast(deletes), change.key, null_safe=change.null_safe, once=once)
        return hits.select(_PATH, _ROW, FIRST).toArrow()
    hits = rows.where(_is_one_of(change, list(keys))).select(*placed, col(change.key[0]).alias(_KEY)).toArrow()
    firsts = pa.array([keys.get(k) for k in hits.column(_KEY).to_pylist()], pa.int64())
    return hits.select([_PATH, _ROW]).append_column(FIRST, firsts)


def _is_one_of(change: Change, keys: Sequence[Any]) -> Any:
    """The condition as SQL text: one call into the JVM, whatever the number of keys."""
    name = quoted(change.key[0])
    texts = ", ".join(_sql(k) for k in keys if k is not None)
    one_of = f"{name} IN ({texts})" if texts else "false"
    return F.expr(f"{one_of} OR {name} IS NULL" if change.null_safe and None in keys else one_of)


def _sql(value: Any) -> str:
    """A literal that means the same whatever the session's settings: texts go by their bytes."""
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex()}'"
    return f"{value}L" if value >= 0 else f"(-{-value}L)" if value > -(1 << 63) else "(-9223372036854775807L - 1L)"


def _by_file(hits: pa.Table) -> dict[str, Rows]:
    """File → numbers of the rows."""
    paths = pa.concat_arrays([pa.array([], pa.string()), *hits.column(0).chunks]).dictionary_encode()
    rows = hits.column(1).to_numpy()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    return {url: np.sort(rows[order[starts[i] : starts[i + 1]]]) for i, url in enumerate(paths.dictionary.to_pylist())}
