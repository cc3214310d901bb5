"""A range added up from its rows' keys, in Arrow: which landed rows are alive at its end.

The holders of values that updates leave out belong to `holders`; a range that is too large for this process to `net_change`,
with whose results these agree. Nothing is written here.

    key, `_lp_op` of each file ─► after the last TRUNCATE ─► each key's first change (is a row presupposed?) and its last
                               ─► per file: the rows that current gets; all keys whose rows current loses

The rows that current gets lie in landed files, so a file most of whose rows are alive can become current's as it is
(`lakeproof.lake.delta.link_commit`): a value that nobody compares is never decoded.

Rows of a bag, or under a configured key with identity FULL, are counted by their digests:

    bag   +1 for a row that came, -1 for one that went: of surplus rows the copies that came last stay, each under its own
          `_lp_dup`; of missing ones the copies that arrived first go. A bag with fewer copies is not what the source was
    key   the same by key and digest: a key may be unique only at commit, but then at most one row comes and one goes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import DUP, FROM, KEY, LSN, OP, ORD, UNCHANGED
from lakeproof.lake.columns import current_columns, has_old_rows, history_columns, keeps_key, key_may_be_null, merge_key
from lakeproof.lake.fold.holders import Base, Holders, UnchangedValues, find_holders, values_of
from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import (
    FIRST,
    AllRows,
    Mask,
    Numbers,
    Removed,
    Unsupported,
    codes,
    presupposed,
    ranks,
    under_keys,
)
from lakeproof.lake.rows.file_rows import DIGEST, FileRows, FoldedFile, LandedRange
from lakeproof.landing.segments.reader import Slice, in_range_mask
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion

ROW_NOT_THERE = "a row that the source deleted or updated is not in the lake, or not as often"
_IMAGES = pa.array(["insert", "update"])


def bag_change(schema: SchemaVersion, after: pa.Table, base: Base | None) -> tuple[np.ndarray, pa.Table]:
    """Return which rows of a bag's changes stay, and the copies that go, by `_lp_key` and `_lp_dup`, with `__lp_first`.

    Raises TableHeldError.
    """
    of_row, count = codes(after, [KEY])
    net, came = _net(of_row, count, _signs(after))
    alive = np.zeros(after.num_rows, np.bool_)
    newest = came[::-1]
    alive[newest] = ranks(of_row[newest]) < net[of_row[newest]]
    missing = np.flatnonzero(net < 0)
    sought = after.select([KEY]).take(pa.array(_first_of(of_row, count)[missing]))
    return alive, _oldest_copies(schema, sought, -net[missing], base)


def keyed_change(schema: SchemaVersion, after: pa.Table, base: Base | None) -> tuple[np.ndarray, pa.Table]:
    """Return which rows of changes stay, and the keys whose rows differ, with `__lp_first` if a row goes.

    Raises TableHeldError if a key would have two rows.
    """
    key = merge_key(schema)
    (of_row, count), (pair, pairs) = codes(after, key), codes(after, [*key, DIGEST])
    net, came = _net(pair, pairs, _signs(after))
    key_of = np.empty(pairs, np.int64)
    key_of[pair] = of_row
    newest, since = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64)
    newest[pair[came]] = came
    went = np.setdiff1d(np.arange(after.num_rows), came)[::-1]
    since[pair[went]] = went
    plus, minus = np.flatnonzero(net > 0), np.flatnonzero(net < 0)
    inserted, deleted = (np.bincount(key_of[of], np.abs(net[of]), count).astype(np.int64) for of in (plus, minus))
    distinct = after.select(list(key)).take(pa.array(_first_of(of_row, count)))
    existing, coming = np.zeros(count, np.int64), np.flatnonzero(inserted)
    if base is not None and len(coming):
        existing[coming] = base.counts(distinct.take(pa.array(coming)))
    left = existing + inserted - deleted
    if ((inserted > 1) | (deleted > 1) | ((inserted == 1) & (left > 1))).any():
        raise TableHeldError(str(schema.table), HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)
    alive = np.zeros(after.num_rows, np.bool_)
    alive[newest[plus]] = True
    first, has_first = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    first[key_of[minus]], has_first[key_of[minus]] = since[minus], True
    ordinals = pc.if_else(pa.array(has_first), after.column(ORD).take(pa.array(first)), pa.scalar(None, pa.int64()))
    touched = pa.array(np.union1d(key_of[plus], key_of[minus]))
    return alive, distinct.append_column(FIRST, ordinals).take(touched)


def _oldest_copies(schema: SchemaVersion, sought: pa.Table, numbers: Numbers, base: Base | None) -> pa.Table:
    """Return so many copies of each digest sought, those that arrived first; raises TableHeldError if there are fewer."""
    stored = pa.table([pa.array([], pa.string()), pa.array([], pa.int64())], [KEY, DUP])
    if base is not None and len(numbers):
        stored = base.fetch(sought, [KEY, DUP]).sort_by(DUP)
    of = pc.index_in(stored.column(KEY), value_set=sought.column(KEY).combine_chunks()).to_numpy().astype(np.int64)
    chosen = np.flatnonzero(ranks(of) < numbers[of])
    if len(chosen) < numbers.sum():
        raise TableHeldError(str(schema.table), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": ROW_NOT_THERE})
    return stored.take(pa.array(chosen)).append_column(FIRST, pa.array(np.arange(len(chosen))))


def _is_image(ops: pa.ChunkedArray) -> Mask:
    mask: Mask = pc.is_in(ops, value_set=_IMAGES).to_numpy()
    return mask


def _signs(after: pa.Table) -> Numbers:
    return np.where(_is_image(after.column(OP)), 1, -1)


def _net(of_row: Numbers, count: int, signs: Numbers) -> tuple[Numbers, Numbers]:
    """Return how often each numbered thing came more than it went, and the places of the rows that came."""
    return np.bincount(of_row, signs, count).astype(np.int64), np.flatnonzero(signs > 0)


def _first_of(of_row: Numbers, count: int) -> Numbers:
    """Return the first place of each number."""
    first = np.empty(count, np.int64)
    first[of_row[::-1]] = np.arange(len(of_row))[::-1]
    return first


# The key columns of a range in memory, in Arrow; adding them up takes about three times as much.
KEY_BYTES_MAX = 256 << 20
# So many rows are read at a time: as many as a row group of a segment has.
ROWS_AT_ONCE = 1 << 17
# So many whole rows are.
_WHOLE_ROWS_AT_ONCE = 1 << 14
# The walk to the holders of unchanged values goes row by row, some microseconds for each.
WALKED_ROWS_MAX = 1_000_000
_TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class KeyFold:
    """A range added up: its files, and the rows before that are `removed`: of each touched key, unless all changes insert.

    `holders` say which rows have the values that others lack; None if none lacks any. Rows are named by their file and a
    mask of it.
    """

    landed: LandedRange
    files: Sequence[FoldedFile]
    removed: Removed[pa.Table] | AllRows | None
    holders: Holders | None = None

    def history(self, chosen: Sequence[tuple[FoldedFile, Mask]]) -> Iterator[pa.Table]:
        """Give rows as history has them, each that lacks a value with the name of its holder."""
        columns, unchanged = in_landing(self.landed.schema, history_columns(self.landed.schema)), self._marks()
        for file, mask in chosen:
            for part, numbers in self.rows(file, mask, columns):
                yield part if unchanged is None else unchanged.marked(part, numbers)

    def current(self, chosen: Sequence[tuple[FoldedFile, Mask]]) -> Iterator[pa.Table]:
        """Give rows as current has them, with every value; raises `Unsupported` if those left out take too much memory."""
        schema, holders = self.landed.schema, self.holders
        columns = in_landing(schema, current_columns(schema))
        unchanged = None if holders is None else values_of(schema, holders, self.files, self._values)
        for file, mask in chosen:
            for part, numbers in self.rows(file, mask, columns):
                yield part if unchanged is None else unchanged.completed(part, numbers)

    def sum(self) -> HistorySum:
        """Return the sum of the rows that history gets."""
        return reduce(HistorySum.plus, map(self._sum, self.files), HistorySum())

    def rows(self, file: FoldedFile, mask: Mask, columns: Sequence[str]) -> Iterator[tuple[pa.Table, Sequence[int]]]:
        """Give the rows of the file that the mask has, with some of the lake's columns, and their numbers.

        `_lp_ord` is the cycle's. The numbers are nothing unless some row of the range lacks a value.
        """
        place, moved = 0, self._moved(file)
        source = FileRows(self.landed.schema, columns)
        with file.piece.open() as opened:
            at_once = max(1, min(_WHOLE_ROWS_AT_ONCE, ROW_GROUP_BYTES // max(1, file.piece.file.decoded.row)))
            for batch in opened.iter_batches(at_once, columns=source.needed):
                chosen = mask[place : place + batch.num_rows]
                numbers: Sequence[int] = ()
                if file.numbers is not None:
                    numbers = file.numbers[place : place + batch.num_rows][chosen].tolist()
                place += batch.num_rows
                if not chosen.any():
                    continue
                rows = batch if chosen.all() else batch.filter(pa.array(chosen))
                yield pa.table(source.of(rows, moved)), numbers

    def _marks(self) -> UnchangedValues | None:
        holders = self.holders
        return None if holders is None else UnchangedValues(self.landed.schema, holders, pa.table({}), {})

    def _values(self, file: FoldedFile, mask: Mask, names: Sequence[str]) -> Iterator[pa.Table]:
        return (part for part, _ in self.rows(file, mask, names))

    def _moved(self, file: FoldedFile) -> int:
        """Return by how much the cycle's ordinals of the file's rows differ from those that it holds."""
        return self.landed.first_ordinals[file.piece.number] - file.piece.first_ordinal

    def _sum(self, file: FoldedFile) -> HistorySum:
        """Return the sum of the file's rows in the range: its writer's, less the rows outside, unless these are many."""
        whole = HistorySum(file.piece.file.rows, file.piece.file.sum)
        is_other = self._moved(file) or file.holes.any() or keeps_key(self.landed.schema)
        if is_other or 2 * int(file.in_range.sum()) < len(file.in_range):
            return self._sum_of(file, file.in_range)
        return whole if file.in_range.all() else whole.minus(self._sum_of(file, ~file.in_range))

    def _sum_of(self, file: FoldedFile, mask: Mask) -> HistorySum:
        """Return the sum of the file's rows that the mask has; they are read for it."""
        # A segment in which the range ends has files none of whose rows are in it.
        return sum_of(self.landed.schema, self.history([(file, mask)])) if mask.any() else HistorySum()


def fold_keys(
    landed: LandedRange,
    counts: ChangeCounts,
    base: Base | None,
    *,
    left_out: pa.Table | None = None,
    key_bytes_max: int = KEY_BYTES_MAX,
    rows_at_once: int = ROWS_AT_ONCE,
) -> KeyFold:
    """Add up a range on top of `base`, the table before it (None: it has no rows).

    Its keys take at most `key_bytes_max`, and are read `rows_at_once`. Changes of keys that are `left_out` are not in it.

    Raises `Unsupported`, and TableHeldError if a bag lacks a row that goes, or a configured key would not be unique.
    """
    schema = landed.schema
    key, is_counted = merge_key(schema), schema.is_bag or has_old_rows(schema)
    if any(piece.file.refused for piece in landed.slices):
        raise Unsupported("a row has a text that is refused")
    if counts.inserts_only and not counts.unchanged and (schema.is_bag or not is_counted) and left_out is None:
        return KeyFold(landed, [_inserted(piece, landed) for piece in landed.slices], None)
    if is_counted and counts.unchanged:
        raise Unsupported("an update of a table whose updates bring the whole old row leaves a value out")
    read = [KEY] if schema.is_bag else [*key, DIGEST] if is_counted else key
    batches = partial(_keys, landed=landed, key=read, unchanged=counts.unchanged > 0, rows_at_once=rows_at_once)
    changes, masks = _read(landed, batches, key_bytes_max, left_out)
    order = _in_order(changes)
    changes = changes if order is None else changes.take(pa.array(order))
    is_truncate = pc.equal(changes.column(OP), _TRUNCATE).to_numpy()
    if not is_counted and any((changes.column(name).is_null().to_numpy() & ~is_truncate).any() for name in key):
        # Only the whole row shows if it must be refused.
        raise Unsupported("a change has NULL in its key")
    truncates = np.flatnonzero(is_truncate)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    after, alive = changes.slice(start), np.zeros(changes.num_rows, np.bool_)
    holders = None
    if is_counted:
        add_up = bag_change if schema.is_bag else keyed_change
        alive[start:], keys = add_up(schema, after, None if len(truncates) else base)
    else:
        alive[start:], keys = _newest(key, after)
    if counts.unchanged:
        if changes.num_rows > WALKED_ROWS_MAX:
            raise Unsupported(f"more than {WALKED_ROWS_MAX:,} changes, some of which lack an unchanged value")
        holders = find_holders(schema, changes, None if base is None else base.fetch)
    must_exist = keys.num_rows - keys.column(FIRST).null_count
    by_key = Removed(key, keys, key_may_be_null(schema), must_exist)
    removed = AllRows(must_exist) if len(truncates) else by_key
    return KeyFold(landed, _files(landed, masks, order, alive, holders), removed, holders)


def _newest(key: Sequence[str], after: pa.Table) -> tuple[Mask, pa.Table]:
    """Return which rows are alive, each key's newest if it is an image, and the keys with `__lp_first`."""
    of_row, count = codes(after, key)
    last, alive = np.empty(count, np.int64), np.zeros(after.num_rows, np.bool_)
    # Of several places with one code the one that comes last stays.
    last[of_row] = np.arange(len(of_row))
    alive[last] = _is_image(after.column(OP).take(last))
    return alive, presupposed(key, after.take(_first_of(of_row, count)), after)


def _files(
    landed: LandedRange, masks: Sequence[Mask], order: Numbers | None, alive: Mask, holders: Holders | None
) -> list[FoldedFile]:
    """Part what is known of all rows in the range, which stand in their order, among the files."""
    numbers = np.arange(len(alive))
    if order is not None:
        numbers[order] = np.arange(len(alive))
    holes = np.zeros(len(alive), np.bool_)
    if holders is not None:
        holes[list(holders.marks)] = True
    files, place = list[FoldedFile](), 0
    for piece, mask in zip(landed.slices, masks, strict=True):
        own = numbers[place : place + int(mask.sum())]
        of_file, lacking = np.zeros(len(mask), np.bool_), np.zeros(len(mask), np.bool_)
        of_file[mask], lacking[mask] = alive[own], holes[own]
        named = None
        if holders is not None:
            named = np.full(len(mask), -1)
            named[mask] = own
        files.append(FoldedFile(piece, mask, of_file, lacking, named))
        place += len(own)
    return files


def _read(
    landed: LandedRange,
    batches: Callable[[Slice], Iterator[tuple[pa.Table, Mask]]],
    key_bytes_max: int,
    left_out: pa.Table | None,
) -> tuple[pa.Table, list[Mask]]:
    """Return the range's key columns, with `_lp_op` and the cycle's `_lp_ord`, and which rows of each file are in it."""
    tables, masks, size = list[pa.Table](), list[Mask](), 0
    for piece in landed.slices:
        of_file = [np.zeros(0, np.bool_)]
        for rows, in_range in batches(piece):
            mask = in_range if left_out is None else in_range & ~under_keys(rows, left_out)
            chosen = rows if mask.all() else rows.filter(pa.array(mask))
            size += chosen.nbytes
            if size > key_bytes_max:
                raise Unsupported(f"the range's keys take more than {key_bytes_max >> 20} MiB")
            tables.append(chosen)
            of_file.append(mask)
        masks.append(np.concatenate(of_file))
    return pa.concat_tables(tables), masks


def _in_order(changes: pa.Table) -> Numbers | None:
    """Return the places of the rows in the order of `_lp_ord`; None if they stand in it."""
    ordinals = changes.column(ORD).to_numpy()
    return np.argsort(ordinals) if (ordinals[1:] < ordinals[:-1]).any() else None


def _inserted(piece: Slice, landed: LandedRange) -> FoldedFile:
    if piece.whole:
        mask = np.ones(piece.file.rows, np.bool_)
    else:
        with piece.open() as file:
            mask = _mask(file.read([LSN]), landed)
    return FoldedFile(piece, mask, mask, np.zeros(len(mask), np.bool_))


def _mask(rows: pa.Table | pa.RecordBatch, landed: LandedRange) -> Mask:
    return np.asarray(in_range_mask(rows.column(LSN), landed.start, landed.end))


def _keys(
    piece: Slice, *, landed: LandedRange, key: Sequence[str], unchanged: bool, rows_at_once: int
) -> Iterator[tuple[pa.Table, Mask]]:
    """Give a file's key columns by the lake's names, with `_lp_op` and the cycle's `_lp_ord`, and the rows in the range.

    Some rows at a time: a file may hold one transaction of any size.
    """
    names = [*key, OP, ORD, *([UNCHANGED] if unchanged else [])]
    source = FileRows(landed.schema, names)
    moved = landed.first_ordinals[piece.number] - piece.first_ordinal
    read = dict.fromkeys([*source.needed, *([] if piece.whole else [LSN])])
    # Of a key that is computed the columns may be large.
    is_stored = set(key) <= set(landed.schema.key)
    at_once = rows_at_once if is_stored else min(rows_at_once, ROW_GROUP_BYTES // max(1, piece.file.decoded.row))
    with piece.open() as file:
        for batch in file.iter_batches(max(1, at_once), columns=list(read)):
            mask = np.ones(batch.num_rows, np.bool_) if piece.whole else _mask(batch, landed)
            yield pa.table(source.of(batch, moved)).select(names), mask


def sum_of(schema: SchemaVersion, rows: Iterator[pa.Table]) -> HistorySum:
    """Return the sum of rows of history."""
    # Imported here because it imports the compiler, which few cycles need.
    from lakeproof.landing.segments.row_sums import RowSum

    sums = RowSum({column.name: column.attnum for column in schema.columns})
    for part in rows:
        sums.add(part)
    return HistorySum(sums.rows, sums.total)


def in_landing(schema: SchemaVersion, columns: Sequence[str]) -> list[str]:
    """Return the columns that a landed row has, or that are computed from it; all other columns are NULL."""
    return [name for name in columns if name != FROM and (name != KEY or keeps_key(schema))]
