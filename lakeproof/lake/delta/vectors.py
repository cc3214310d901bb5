"""Commit by deletion vectors: deleted rows are marked in vectors, inserted rows are files, and one commit has them all.

    keys of the change ─► scan of the key columns alone, with file and row number ─► bitmaps per file ┐
    images ─► data files ─────────────────────────────────────────────────────────────────────────────┴─► one commit

Choosing this strategy belongs to `apply`, the names inside Delta to `jvm`; the portable strategy is `merge`.

Cost: two Spark jobs, compared with nineteen of a MERGE (one if nothing is deleted; Delta's own append would rebuild the
table state to find the last transaction number). None of them reads the table's log as long as the version's checksum file
lists the data files. Few keys are literals of the scan, more are sent to every task; Parquet reads only the row groups in
which an integer key's bounds or literals lie, and files that their statistics exclude are not opened.

Known weakness: it needs names that Delta does not promise. Hence `Unsupported` for every table whose features were not
tried, and `self_test` before the first use in a JVM.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import PUT_AWAY, scratch
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.commit import CommitInfo, CommitRequest, Unsupported
from lakeproof.lake.delta.jvm import TableFile, Transaction
from lakeproof.lake.delta.reader_features import VECTORS_ENABLED
from lakeproof.lake.rows.change import HeldKeys, NetChange
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.key_preconditions import check_firsts
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.lake.rows.preconditions import matching_rows

# Up to here keys are literals of the scan; 1,000 took longer to plan than a join.
LITERAL_KEYS_MAX = 400
LITERAL_BYTES_MAX = 1 << 20
# Above this there are too many keys to send to every task, and too many places for the driver (100 bytes each).
KEYS_MAX = 1_000_000
KEYS_BYTES_MAX = 64 << 20
# Each file costs some calls into the JVM (0.3 ms); a table with more files has small ones that wait for OPTIMIZE.
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
KEYS_TOO_LARGE = f"its keys are more than {KEYS_BYTES_MAX >> 20} MiB"
_PATH, _ROW, _KEY = scratch("path"), scratch("at"), scratch("hit")
# An empty array of a list would import pandas, which takes a tenth of the time in which a location loads.
_NO_HITS = pa.schema([(_PATH, pa.string()), (_ROW, pa.int64()), (FIRST, pa.int64())]).empty_table()
Rows: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """A transaction with the places of the rows to delete (file → row numbers), which lie in some of the `files`.

    `places` is None if nothing is deleted.
    """

    txn: Transaction
    images: DataFrame | None
    files: Sequence[TableFile]
    places: Mapping[str, Rows] | None


def write_with_deletion_vectors(rows: FoundRows, info: CommitInfo) -> None:
    """Write the rows to insert, and commit; no commit if nothing is deleted or inserted."""
    txn, images = rows.txn, rows.images
    if rows.places is None:
        if images is not None and txn.add_rows(images):
            failpoint("apply.before_commit")
            txn.commit_append(info.app_id, info.number, info.user_metadata)
        return
    deleted = txn.remove_rows(rows.places, rows.files)
    inserted = 0 if images is None else txn.add_rows(images)
    if not txn.is_empty:
        failpoint("apply.before_commit")
        txn.commit(info.app_id, info.number, inserted=inserted, deleted=deleted)


def find_rows(session: SparkSession, request: CommitRequest, before: int, txn: Transaction | None = None) -> FoundRows:
    """Find the rows to delete on version `before`, in this transaction if there is one.

    Raises `Unsupported`, and DriftedError if the rows are not those that the change presupposes.
    """
    change, max_keys = request.change, request.hints.max_keys
    deletes_rows = change.deletes is not None or change.keys is not None
    if change.deletes is not None and (max_keys is None or max_keys > KEYS_MAX):
        raise Unsupported(f"more than {KEYS_MAX:,} keys, or their number is not known")
    txn = Transaction(session, request.path) if txn is None else txn
    if txn.version != before:
        raise Unsupported("another version is the newest")  # the caller finds out who wrote it
    images = fitting(txn, change.images)
    if deletes_rows and not txn.has_property(VECTORS_ENABLED, "true"):
        raise Unsupported("the table is written without deletion vectors")
    if not deletes_rows:
        txn.read_all(())
        return FoundRows(txn, images, (), None)
    files = txn.files()
    deletes = change.deletes
    keys = _held_literals(change) if deletes is None else _literals(request, deletes)
    if keys is None and deletes is not None and not keys_fit(change.key, deletes):
        raise Unsupported(KEYS_TOO_LARGE)
    candidates = [f for f in files if _may_hold(f, txn, request, keys)]
    txn.read_all(files)
    hits = _NO_HITS
    held = None if keys is not None or deletes is not None else change.keys
    if held is not None and not change.null_safe:
        candidates, held = _that_meet(held, change.key, candidates, txn)
    if candidates:
        if held is not None:
            deletes = _frame_of(session, held)
            request = replace(request, hints=replace(request.hints, bounds=held.bounds))
        hits = _hits(txn.frame(candidates), request, deletes, keys)
    if change.preconditions is not None:
        check_firsts(request.path, hits.column(FIRST), change.preconditions)
    return FoundRows(txn, images, candidates, by_file(hits))


def is_known(txn: Transaction) -> bool:
    """True if the table is of the kind that was tried: no partitions, no feature beyond those."""
    return not txn.is_partitioned and txn.features <= _KNOWN_FEATURES


def fitting(txn: Transaction, images: DataFrame | None) -> DataFrame | None:
    """Return the images in the table's order of columns; raises `Unsupported` for tables that were not tried."""
    if not is_known(txn):
        others = ", ".join(sorted(txn.features - _KNOWN_FEATURES))
        raise Unsupported(
            f"the table has features that were not tried: {others}" if others else "the table has partitions"
        )
    if txn.file_count > FILES_MAX:
        raise Unsupported(f"the table has {txn.file_count:,} files, more than {FILES_MAX:,}")
    if images is None:
        return None
    expected = {f["name"]: T._parse_datatype_json_value(f["type"]) for f in txn.fields}  # noqa: SLF001  Delta's schema is Spark's
    # Columns that were put away have no value in new rows.
    away = {n: F.lit(None).cast(t).alias(n) for n, t in expected.items() if n.startswith(PUT_AWAY)}
    if away:
        images = images.select("*", *(value for name, value in away.items() if name not in images.columns))
    given = {f.name: f.dataType for f in images.schema.fields}
    if {n: t.simpleString() for n, t in expected.items()} != {n: t.simpleString() for n, t in given.items()}:
        raise Unsupported("the columns of the change are not exactly the table's")  # MERGE casts
    return pick(images, expected)


def _literals(request: CommitRequest, deletes: DataFrame) -> dict[Any, int | None] | None:
    """Return the values of a single key column with their `__lp_first`, in order, NULL last; None unless they are few."""
    change, max_keys = request.change, request.hints.max_keys
    if len(change.key) != 1 or max_keys is None or max_keys > LITERAL_KEYS_MAX:
        return None
    field = deletes.schema[change.key[0]]
    if not isinstance(field.dataType, T.IntegralType | T.StringType | T.BinaryType):
        return None
    # No index limits the size of a key that a person configured: a large one is not brought to the driver.
    key = col(field.name)
    is_wide = isinstance(field.dataType, T.StringType | T.BinaryType)
    large = F.octet_length(key) > LITERAL_BYTES_MAX // LITERAL_KEYS_MAX if is_wide else F.lit(False)
    large = F.coalesce(large, F.lit(False))
    # Not by Arrow: rows that the driver holds already are then collected without a job.
    first = F.lit(None) if change.preconditions is None else col(FIRST)
    rows = deletes.select(F.when(~large, key), large, first).collect()
    if any(row[1] for row in rows):
        return None
    values = {bytes(k) if isinstance(k, bytearray) else k: number for k, _, number in rows}
    return {k: values[k] for k in [*sorted(v for v in values if v is not None), *([None] if None in values else [])]}


def _held_literals(change: NetChange) -> dict[Any, int | None] | None:
    """Do the same for keys that this process holds."""
    rows = None if change.keys is None else change.keys.rows
    if rows is None or len(change.key) != 1 or rows.num_rows > LITERAL_KEYS_MAX or rows.nbytes > LITERAL_BYTES_MAX:
        return None
    key = rows.column(change.key[0])
    if not (pa.types.is_integer(key.type) or pa.types.is_string(key.type) or pa.types.is_binary(key.type)):
        return None
    values = dict(zip(key.to_pylist(), rows.column(FIRST).to_pylist(), strict=True))
    return {k: values[k] for k in sorted(values)}


def _that_meet(
    held: HeldKeys, key: Sequence[str], files: Sequence[TableFile], txn: Transaction
) -> tuple[list[TableFile], HeldKeys]:
    """Return the files that may have one of the keys, and the keys that one of them may have, by a single integer's bounds.

    Of a range of many inserts most keys are above all that the table has.
    """
    column = held.rows.column(key[0])
    if len(key) != 1 or not len(column) or not pa.types.is_integer(column.type):
        return list(files), held
    order = np.argsort(column.to_numpy())
    values = column.to_numpy()[order]
    meets, chosen = np.zeros(len(values), np.bool_), list[TableFile]()
    for file in files:
        low, high = file.key_range(txn.physical(key[0])) or (values[0], values[-1])
        first, end = int(np.searchsorted(values, low)), int(np.searchsorted(values, high, "right"))
        meets[first:end] = True
        chosen += [file] if first < end else []
    return chosen, HeldKeys(held.rows.take(pa.array(np.sort(order[meets]))), held.types)


def _frame_of(session: SparkSession, keys: HeldKeys) -> DataFrame:
    """Return the keys for Spark; raises `Unsupported` if there are too many for every task."""
    if keys.rows.num_rows > KEYS_MAX:
        raise Unsupported(f"more than {KEYS_MAX:,} keys")
    if keys.rows.nbytes > KEYS_BYTES_MAX:
        raise Unsupported(KEYS_TOO_LARGE)
    return keys.frame(session)


def keys_fit(key: Sequence[str], deletes: DataFrame) -> bool:
    """True if the keys have few enough bytes for every task; costs a job if they are texts that the driver does not hold."""
    wide = [k for k in key if isinstance(deletes.schema[k].dataType, T.StringType | T.BinaryType)]
    if not wide or deletes._jdf.queryExecution().optimizedPlan().nodeName() == "LocalRelation":  # noqa: SLF001  no public name for the plan
        return True
    size = deletes.select(sum((F.coalesce(F.octet_length(col(k)), F.lit(0)) for k in wide), F.lit(0)).alias("size"))
    total = size.agg(F.sum(F.col("size").cast("bigint"))).collect()[0][0]
    return total is None or int(total) <= KEYS_BYTES_MAX


def _may_hold(file: TableFile, txn: Transaction, request: CommitRequest, keys: Iterable[Any] | None) -> bool:
    """True if a file may have one of the keys.

    Check the file's statistics. Only for integers: text statistics are truncated.
    """
    change, bounds = request.change, request.hints.bounds
    values = [k for k in keys or () if k is not None]
    are_integers = bool(values) and None not in (keys or ()) and isinstance(values[0], int)
    if (bounds is None and not are_integers) or change.null_safe:
        return True
    key_range = file.key_range(txn.physical(change.key[0]))
    if key_range is None:
        return True
    low, high = key_range
    if bounds is not None and (high < bounds[0] or low > bounds[1]):
        return False
    first = bisect_left(values, low) if are_integers else 0
    return not are_integers or (first < len(values) and values[first] <= high)


def _hits(
    rows: DataFrame, request: CommitRequest, deletes: DataFrame | None, keys: Mapping[Any, int | None] | None
) -> pa.Table:
    """Return the places of the rows that have one of the keys, with the key's `__lp_first`. One job."""
    change, bounds = request.change, request.hints.bounds
    if bounds is not None and not change.null_safe:
        rows = rows.where(col(change.key[0]).between(*bounds))
    # A view may have a column of that name.
    metadata = rows.metadataColumn("_metadata")
    placed = [metadata.getField("file_path").alias(_PATH), metadata.getField("row_index").alias(_ROW)]
    if keys is None and deletes is not None:
        rows = rows.select(*(col(k) for k in change.key), *placed)
        once = change.preconditions is not None
        hits = matching_rows(rows, F.broadcast(deletes), change.key, null_safe=change.null_safe, once=once)
        return hits.select(_PATH, _ROW, FIRST).toArrow()
    one_of = is_one_of(change.key[0], list(keys or ()), null_safe=change.null_safe)
    hits = rows.where(one_of).select(*placed, col(change.key[0]).alias(_KEY)).toArrow()
    firsts = pa.array([(keys or {}).get(k) for k in hits.column(_KEY).to_pylist()], pa.int64())
    return hits.select([_PATH, _ROW]).append_column(FIRST, firsts)


def is_one_of(key: str, keys: Sequence[Any], *, null_safe: bool) -> Any:
    """Return the condition as SQL text: one call into the JVM, whatever the number of keys."""
    name = quoted(key)
    texts = ", ".join(_sql(k) for k in keys if k is not None)
    one_of = f"{name} IN ({texts})" if texts else "false"
    return F.expr(f"{one_of} OR {name} IS NULL" if null_safe and None in keys else one_of)


def _sql(value: Any) -> str:
    """Return a literal that means the same under all settings of a session: texts are given by their bytes."""
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex()}'"
    return f"{value}L" if value >= 0 else f"(-{-value}L)" if value > -(1 << 63) else "(-9223372036854775807L - 1L)"


def by_file(hits: pa.Table) -> dict[str, Rows]:
    """Return file → row numbers."""
    paths = pa.concat_arrays([pa.array([], pa.string()), *hits.column(0).chunks]).dictionary_encode()
    rows = hits.column(1).to_numpy()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    return {url: np.sort(rows[order[starts[i] : starts[i + 1]]]) for i, url in enumerate(paths.dictionary.to_pylist())}
