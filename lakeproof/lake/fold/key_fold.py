"""A range of a keyed table added up from its key columns alone, in Arrow: which landed rows are alive at its end.

Small ranges, which are read whole, belong to `in_memory`; bags, identity FULL, computed keys, unchanged TOAST values and
TRUNCATE to `net_change`, with whose results these agree. Nothing is written here.

    key, `_lp_op` of each file ─► each key's first change (is a row presupposed?) and its last
                               ─► per file: the rows that current gets; all keys whose rows current loses

The rows that current gets lie in landed files, so a file most of whose rows are alive can become current's as it is
(`lakeproof.lake.delta.link_commit`): a value that nobody compares is never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import LSN, OP, ORD
from lakeproof.lake.columns import merge_key
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.planning.range_counts import in_range_mask
from lakeproof.lake.rows.keys_in_memory import FIRST, presupposed
from lakeproof.landing.file_columns import file_names
from lakeproof.landing.reader import Slice

# The key columns of a range in memory, in Arrow; adding them up takes about three times as much.
KEY_BYTES_MAX = 256 << 20
# So many rows are read at a time: as many as a row group of a segment has.
_ROWS_AT_ONCE = 1 << 17
_IMAGES = pa.array(["insert", "update"])
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


class NotFolded(Exception):  # noqa: N818  not an error: Spark adds the range up
    """A range that can't be added up from its key columns in this process."""


@dataclass(frozen=True, slots=True)
class FoldedFile:
    """A landed file: which of its rows are in the range, and which of these current gets."""

    piece: Slice
    in_range: Mask
    alive: Mask


@dataclass(frozen=True, slots=True)
class KeyFold:
    """A range added up: `keys` has each touched key once, with `__lp_first`; None if the range has inserts alone."""

    files: Sequence[FoldedFile]
    keys: pa.Table | None

    @property
    def preconditions(self) -> int | None:
        """The number of keys of which a row must exist."""
        return None if self.keys is None else len(self.keys) - self.keys.column(FIRST).null_count


def fold_keys(landed: LandedRange, *, inserts_only: bool) -> KeyFold:
    """Add up a range without TRUNCATE, whose rows all have their values. Raises NotFolded."""
    key = merge_key(landed.schema)
    if inserts_only:
        return KeyFold([_inserted(piece, landed) for piece in landed.slices], None)
    tables, masks, size = list[pa.Table](), list[Mask](), 0
    for piece in landed.slices:
        of_file = list[Mask]()
        for rows, mask in _keys(piece, landed):
            size += rows.nbytes
            if size > KEY_BYTES_MAX:
                raise NotFolded(f"the range's keys take more than {KEY_BYTES_MAX >> 20} MiB")
            tables.append(rows)
            of_file.append(mask)
        masks.append(np.concatenate(of_file))
    changes = pa.concat_tables(tables).filter(pa.array(np.concatenate(masks)))
    if any(changes.column(name).null_count for name in key):
        # Whether it is refused, or a value that its type can't hold, is seen in the whole row.
        raise NotFolded("a change has NULL in its key")
    first, last = _ends(changes, key)
    alive = np.zeros(changes.num_rows, np.bool_)
    alive[last] = pc.is_in(changes.column(OP).take(last), value_set=_IMAGES).to_numpy()
    files, place = list[FoldedFile](), 0
    for piece, mask in zip(landed.slices, masks, strict=True):
        count = int(mask.sum())
        alive_in_file = np.zeros(len(mask), np.bool_)
        alive_in_file[mask] = alive[place : place + count]
        files.append(FoldedFile(piece, mask, alive_in_file))
        place += count
    return KeyFold(files, presupposed(key, changes.take(first), changes))


def _ends(changes: pa.Table, key: Sequence[str]) -> tuple[Places, Places]:
    """Return the places of each key's first change and of its last."""
    codes, count = _codes(changes, key)
    places, ordinals = np.arange(len(codes)), changes.column(ORD).to_numpy()
    if (ordinals[1:] < ordinals[:-1]).any():
        places = np.argsort(ordinals)
        codes = codes[places]
    first, last = np.empty(count, np.int64), np.empty(count, np.int64)
    # Of several places with one code the one that comes last stays.
    first[codes[::-1]] = places[::-1]
    last[codes] = places
    return first, last


def _codes(changes: pa.Table, key: Sequence[str]) -> tuple[Places, int]:
    """Return a number for each row, from zero on, the same for rows with the same key, and the count of keys."""
    codes, count = np.zeros(changes.num_rows, np.int64), 1
    for name in key:
        column = changes.column(name).combine_chunks().dictionary_encode()
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
        count *= len(column.dictionary)
        if len(key) > 1:
            # Numbers of pairs of columns have gaps, and must not grow with each column.
            pairs = pa.array(codes).dictionary_encode()
            codes, count = pairs.indices.to_numpy().astype(np.int64), len(pairs.dictionary)
    return codes, count


def _inserted(piece: Slice, landed: LandedRange) -> FoldedFile:
    if piece.whole:
        mask = np.ones(piece.file.rows, np.bool_)
    else:
        with piece.open() as file:
            mask = _mask(file.read([LSN]), landed)
    return FoldedFile(piece, mask, mask)


def _mask(rows: pa.Table | pa.RecordBatch, landed: LandedRange) -> Mask:
    return np.asarray(in_range_mask(rows.column(LSN), landed.start, landed.end))


def _keys(piece: Slice, landed: LandedRange) -> Iterator[tuple[pa.Table, Mask]]:
    """Give a file's key columns by the lake's names, with `_lp_op` and the cycle's `_lp_ord`, and the rows in the range.

    Some rows at a time: a file may hold one transaction of any size.
    """
    schema = landed.schema
    key = merge_key(schema)
    in_file = dict(zip((c.name for c in schema.columns), file_names(schema), strict=True))
    names = [in_file[name] for name in key]
    moved = pa.scalar(landed.first_ordinals[piece.number] - piece.first_ordinal, pa.int64())
    read = [*names, OP, ORD] if piece.whole else [*names, OP, ORD, LSN]
    with piece.open() as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=read):
            mask = np.ones(batch.num_rows, np.bool_) if piece.whole else _mask(batch, landed)
            ordinals = pc.add(batch.column(ORD), moved)
            columns = [*(batch.column(name) for name in names), batch.column(OP).cast(pa.string()), ordinals]
            yield pa.table(columns, [*key, OP, ORD]), mask
