"""The apply contract: a table, the rows to delete and the rows to insert as Spark has them → exactly one version, once.

The rows to delete and to insert come from `rows.change` and its makers, the order of commits from `lakeproof.lake.cycle`.
`link_commit` commits what this process writes without Spark; both end in the same commit (`RowCommit`).

    deletes ─► the places of rows ┐
    images ─► plain Parquet in a folder of the table (`files.by_spark`) ─► one commit

Few keys are collected, and found in this process by the key columns alone (`search`): no second job. Many are joined with
the table's rows, and each file's rows come back as bitmaps, 4 KiB for 32,768 rows. Memory: `KEYS_BYTES_MAX` of keys, or an
eighth of a byte for each row of the files that lose some. Only public names of Spark and Delta are used.

Invariant idempotent-apply: the commit carries (application id, number), and is made on the expected version: whatever an
earlier attempt has left above that version was restored over (`log.cleaned`). A commit is made on the version that was read
or not at all: the loser of that race starts again from the newer version (TransientError).

A commit is made in two steps, so that anything that may be refused about a table is known before the first of its Delta
tables gets a commit: `prepare` finds the rows to delete and checks them (`rows.correction.check_rows`), and writes the
files; `RowCommit.commit` makes the version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.errors import InvariantError, LakeError
from lakeproof.hidden_columns import scratch
from lakeproof.lake.delta.committer import AddedFile, Applied, CommitInfo, version_to_follow
from lakeproof.lake.delta.files.by_spark import schema_fields, write_by_spark
from lakeproof.lake.delta.link_commit import RowCommit, spared, write_rows
from lakeproof.lake.delta.log.commits import NO_VERSION, Action, newest_version
from lakeproof.lake.delta.log.protocol import TableSpec, check_writable, metadata_of, statistics_of, with_other_columns
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.delta.search import find_places
from lakeproof.lake.delta.versions import read_at
from lakeproof.lake.rows.change import FIRST, AllRows, NetChange, Numbers, Removed, check_counts, check_keys
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.correction import check_rows, join_on_key
from lakeproof.storage.folder import Folder


def apply_change(session: SparkSession, request: CommitRequest) -> Applied:
    """Commit once: what the change removes goes, then its `images` come. Raises as `prepare`."""
    return prepare(session, request).commit()


def prepare(session: SparkSession, request: CommitRequest) -> RowCommit:
    """Find the rows to delete, write those that come, and commit nothing yet.

    Commits after the expected version that change no data are passed over; any other raises ForeignCommitError, one with our
    number TransientError. Raises DriftedError if the rows that the change presupposes are not those in the table, LakeError
    about a table that lakeproof does not write. If someone else commits before us, TransientError is raised and our commit
    is not made.
    """
    path, change, expected = request.path, request.change, request.expected_version
    before = newest_version(path) if expected is None else version_to_follow(path, expected, request.info)
    if before == NO_VERSION:
        if request.create is None or change.images is None:
            raise LakeError(path, "there is no Delta table", "restore it, or bootstrap the table again")
        return with_files(request, None, {})
    state = read_state(path, before)
    check_writable(state)
    match change.removed:
        case AllRows(presupposed):
            check_counts(path, presupposed)
        case Removed() as removed:
            return with_files(request, state, _find_rows(session, request, state, removed))
    return with_files(request, state, {})


def with_files(request: CommitRequest, before: TableState | None, places: Mapping[str, Numbers]) -> RowCommit:
    """Write the rows that come; those at `places` of the version `before` (None: there is no table yet) go.

    The caller has checked that lakeproof writes such a table.
    """
    path, info, images = request.path, request.info, request.change.images
    metadata = None if images is None else _metadata(request, before, images)
    files: list[AddedFile] = []
    columns = metadata if metadata is not None or before is None else before.metadata
    if images is not None and columns is not None:
        files += write_by_spark(images, path, info.number, columns)
    if before is not None:
        rows, chosen = spared(before, places), statistics_of(before.metadata)
        files += write_rows(rows, Folder.at(path), info.number, before.fields, chosen)
    everything = isinstance(request.change.removed, AllRows)
    return RowCommit(path, info, before, files, places, everything, metadata)


def _metadata(request: CommitRequest, before: TableState | None, images: DataFrame) -> Action | None:
    """Return the `metaData` that the commit brings; None if the table keeps its columns."""
    if before is None:
        options = {} if request.create is None else request.create.options(images.columns)
        return metadata_of(schema_fields(images), options)
    match request.change.removed:
        case AllRows(new_columns=True):
            return with_other_columns(before.metadata, schema_fields(images))
    return None


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


def _find_rows(
    session: SparkSession, request: CommitRequest, state: TableState, removed: Removed[DataFrame]
) -> Mapping[str, Numbers]:
    """Return the places of the rows that go by their keys: path in the log → row numbers, in order.

    Raises DriftedError if the rows are not those that the change presupposes.
    """
    keys = _collected(request.max_keys, removed)
    if keys is None:
        return _by_join(session, request, state, removed)
    places = find_places(state, keys.key, keys.rows, by_statistics=not keys.null_safe)
    check_keys(request.path, keys, places.keys)
    return places.rows


def _collected(keys_max: int | None, removed: Removed[DataFrame]) -> Removed[pa.Table] | None:
    """Return the keys, with `FIRST` if rows are presupposed; None if there are too many, or one is too large. One job."""
    if keys_max is None or keys_max > KEYS_MAX:
        return None
    wide = [k for k in removed.key if isinstance(removed.rows.schema[k].dataType, T.StringType | T.BinaryType)]
    sizes = sum((F.coalesce(F.octet_length(col(k)), F.lit(0)) for k in wide), F.lit(0))
    large = sizes > F.lit(KEYS_BYTES_MAX // max(1, keys_max))
    chosen = [F.when(~large, col(k)).alias(k) if k in wide else col(k) for k in removed.key]
    firsts = [] if removed.presupposed is None else [col(FIRST)]
    keys = removed.rows.select(*chosen, *firsts, large.alias(_LARGE)).toArrow()
    if pc.any(keys.column(_LARGE), min_count=0).as_py():
        return None
    if not removed.null_safe:
        keys = keys.filter(reduce(pc.and_, (pc.is_valid(keys.column(name)) for name in removed.key)))
    return Removed(removed.key, keys.drop_columns([_LARGE]), removed.null_safe, removed.presupposed)


def _by_join(
    session: SparkSession, request: CommitRequest, state: TableState, removed: Removed[DataFrame]
) -> Mapping[str, Numbers]:
    key, rows = removed.key, _within_bounds(with_places(session, state), removed)
    check_rows(request.path, rows, removed)
    placed = rows.select(*(col(k) for k in key), PATH, ROW)
    return _as_bitmaps(
        join_on_key(placed, pick(removed.rows, key), key, "left_semi", null_safe=removed.null_safe), state
    )


def _within_bounds(rows: DataFrame, removed: Removed[DataFrame]) -> DataFrame:
    """Return a table's rows from the least to the greatest of the keys, so that files are left out. One job over the keys.

    All of them, unless the key is a single whole number: NULL lies within no bounds.
    """
    name = removed.key[0]
    is_whole = isinstance(removed.rows.schema[name].dataType, T.IntegralType)
    if removed.null_safe or len(removed.key) > 1 or not is_whole:
        return rows
    low, high = removed.rows.agg(F.min(col(name)), F.max(col(name))).collect()[0]
    return rows.where(col(name).between(low, high))


def _as_bitmaps(hits: DataFrame, state: TableState) -> Mapping[str, Numbers]:
    """Return the places of rows that have `PATH` and `ROW`, each once. One job."""
    bit = F.col(ROW).bitwiseAND(F.lit((1 << _BLOCK_BITS) - 1))
    blocks = hits.groupBy(PATH, F.shiftright(F.col(ROW), _BLOCK_BITS).alias(_BLOCK))
    parts: defaultdict[str, list[Numbers]] = defaultdict(list)
    for batch in blocks.agg(F.bitmap_construct_agg(bit).alias(_BITS)).toArrow().to_batches():
        for path, block, bits in zip(*(batch.column(name).to_pylist() for name in (PATH, _BLOCK, _BITS)), strict=True):
            inside = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
            parts[path].append(inside + (int(block) << _BLOCK_BITS))
    return _in_log(state, {path: np.sort(np.concatenate(rows)) for path, rows in parts.items()})


def places_of(state: TableState, hits: pa.Table) -> Mapping[str, Numbers]:
    """Return the places of collected rows that have `PATH` and `ROW`, each once."""
    files = hits.column(PATH).combine_chunks().dictionary_encode()
    codes, numbers = files.indices.to_numpy(), hits.column(ROW).to_numpy()
    order = np.lexsort((numbers, codes))
    ends = np.searchsorted(codes[order], np.arange(1, len(files.dictionary)))
    parts = np.split(numbers[order].astype(np.int64), ends)
    return _in_log(state, dict(zip(files.dictionary.to_pylist(), parts, strict=True)))


def _in_log(state: TableState, places: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
    """Return places by the paths that the log has, in place of the URLs that Spark gives to files."""
    _, scheme, rest = state.path.partition("://")
    folder = f"/{rest.partition('/')[2]}/" if scheme else f"{state.path}/"
    by_name = {unquote(path): path for path in state.files}
    result: dict[str, Numbers] = {}
    for url, rows in places.items():
        _, inside, name = unquote(url).partition(folder)
        if not inside or name not in by_name:
            raise InvariantError(state.path, f"version {state.version} has no file {url}", "report this")
        result[by_name[name]] = rows
    return result


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit to the Delta table at `path`: its change, its identity, and the version to make it on.

    `max_keys`: the change deletes at most so many keys, so that few can be collected; None if that is not known.
    `create`: the new table's properties, if there is none yet (None: a missing table is an error). `expected_version`: the
    version that the table should have; None: whichever is the newest.
    """

    path: str
    change: NetChange[DataFrame]
    info: CommitInfo
    max_keys: int | None = None
    create: TableSpec | None = None
    expected_version: int | None = None
