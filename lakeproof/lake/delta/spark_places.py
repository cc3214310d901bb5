"""The places of rows that Spark finds in a version of a table: keys that it has computed, or rows that somebody selects.

What happens to the rows does not belong here (`committer`), nor finding keys that this process holds (`search`). Only public
names of Spark and Delta are used.

    few keys    collected, and found in this process by the key columns alone (`search`): no second job
    many keys   joined with the table's rows; each file's rows come back as bitmaps, 4 KiB for 32,768 rows

Memory: `KEYS_BYTES_MAX` of keys, or an eighth of a byte for each row of the files that lose some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import scratch
from lakeproof.lake.delta.commit import CommitRequest
from lakeproof.lake.delta.search import Rows, find_places
from lakeproof.lake.delta.state import TableState
from lakeproof.lake.delta.versions import read_at
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.key_preconditions import check_firsts
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.lake.rows.preconditions import check_rows

# Keys up to here are collected.
KEYS_MAX = 1_000_000
KEYS_BYTES_MAX = 128 << 20
# A row's file and its number there.
PATH, ROW = scratch("path"), scratch("at")
_LARGE, _BLOCK, _BITS = scratch("large"), scratch("block"), scratch("bits")
# The rows of one bitmap of Spark's, as a power of two.
_BLOCK_BITS = 15


def with_places(session: SparkSession, state: TableState) -> DataFrame:
    """Return a version's rows with `PATH` and `ROW`."""
    rows = read_at(session, state.path, state.version)
    # A table may have a column of that name.
    metadata = rows.metadataColumn("_metadata")
    return rows.select("*", metadata.getField("file_path").alias(PATH), metadata.getField("row_index").alias(ROW))


def find_rows(session: SparkSession, request: CommitRequest, state: TableState) -> Mapping[str, Rows]:
    """Return the places of the rows that a change deletes by their keys: path in the log → row numbers, in order.

    Raises DriftedError if the rows are not those that the change presupposes.
    """
    change = request.change
    if change.deletes is None:
        return {}
    keys = _collected(request, change.deletes)
    if keys is None:
        return _by_join(session, request, state, change.deletes)
    if not change.null_safe:
        keys = keys.filter(reduce(pc.and_, (pc.is_valid(keys.column(name)) for name in change.key)))
    places = find_places(state, change.key, keys, by_statistics=not change.null_safe)
    if change.preconditions is not None:
        check_firsts(request.path, places.firsts(keys), change.preconditions)
    return places.rows


def _collected(request: CommitRequest, deletes: DataFrame) -> pa.Table | None:
    """Return the keys, with `FIRST` if rows are presupposed; None if there are too many, or one is too large. One job."""
    change, keys_max = request.change, request.hints.max_keys
    if keys_max is None or keys_max > KEYS_MAX:
        return None
    wide = [k for k in change.key if isinstance(deletes.schema[k].dataType, T.StringType | T.BinaryType)]
    sizes = sum((F.coalesce(F.octet_length(col(k)), F.lit(0)) for k in wide), F.lit(0))
    large = sizes > F.lit(KEYS_BYTES_MAX // max(1, keys_max))
    chosen = [F.when(~large, col(k)).alias(k) if k in wide else col(k) for k in change.key]
    firsts = [] if change.preconditions is None else [col(FIRST)]
    keys = deletes.select(*chosen, *firsts, large.alias(_LARGE)).toArrow()
    return None if pc.any(keys.column(_LARGE), min_count=0).as_py() else keys.drop_columns([_LARGE])


def _by_join(
    session: SparkSession, request: CommitRequest, state: TableState, deletes: DataFrame
) -> Mapping[str, Rows]:
    change, bounds = request.change, request.hints.bounds
    rows = with_places(session, state)
    if bounds is not None and not change.null_safe:
        rows = rows.where(col(change.key[0]).between(*bounds))
    if change.preconditions is not None:
        check_rows(request.path, rows, deletes, change.key, change.preconditions, null_safe=change.null_safe)
    keys = pick(deletes, change.key)
    keys = F.broadcast(keys) if request.hints.broadcast else keys
    placed = rows.select(*(col(k) for k in change.key), PATH, ROW)
    return _as_bitmaps(join_on_key(placed, keys, change.key, "left_semi", null_safe=change.null_safe), state)


def _as_bitmaps(hits: DataFrame, state: TableState) -> Mapping[str, Rows]:
    """Return the places of rows that have `PATH` and `ROW`, each once. One job."""
    bit = F.col(ROW).bitwiseAND(F.lit((1 << _BLOCK_BITS) - 1))
    blocks = hits.groupBy(PATH, F.shiftright(F.col(ROW), _BLOCK_BITS).alias(_BLOCK))
    parts: defaultdict[str, list[Rows]] = defaultdict(list)
    for batch in blocks.agg(F.bitmap_construct_agg(bit).alias(_BITS)).toArrow().to_batches():
        for path, block, bits in zip(*(batch.column(name).to_pylist() for name in (PATH, _BLOCK, _BITS)), strict=True):
            inside = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
            parts[path].append(inside + (int(block) << _BLOCK_BITS))
    return _in_log(state, {path: np.sort(np.concatenate(rows)) for path, rows in parts.items()})


def places_of(state: TableState, hits: pa.Table) -> Mapping[str, Rows]:
    """Return the places of collected rows that have `PATH` and `ROW`, each once."""
    files = hits.column(PATH).combine_chunks().dictionary_encode()
    codes, numbers = files.indices.to_numpy(), hits.column(ROW).to_numpy()
    order = np.lexsort((numbers, codes))
    ends = np.searchsorted(codes[order], np.arange(1, len(files.dictionary)))
    parts = np.split(numbers[order].astype(np.int64), ends)
    return _in_log(state, dict(zip(files.dictionary.to_pylist(), parts, strict=True)))


def _in_log(state: TableState, places: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """Return places by the paths that the log has, in place of the URLs that Spark gives to files."""
    _, scheme, rest = state.path.partition("://")
    folder = f"/{rest.partition('/')[2]}/" if scheme else f"{state.path}/"
    by_name = {unquote(path): path for path in state.files}
    result: dict[str, Rows] = {}
    for url, rows in places.items():
        _, inside, name = unquote(url).partition(folder)
        if not inside or name not in by_name:
            raise InvariantError(state.path, f"version {state.version} has no file {url}", "report this")
        result[by_name[name]] = rows
    return result
