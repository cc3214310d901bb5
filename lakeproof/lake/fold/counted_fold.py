"""Rows counted by their digests, in Arrow: what changes of a bag, or of a configured key under identity FULL, add up to.

Reading the changes belongs to `key_fold`; the same by Spark to `net_change`, with whose results these agree.

    bag   +1 for a row that came, -1 for one that went: of surplus rows the copies that came last stay, each under its own
          `_lp_dup`; of missing ones the copies that arrived first go. A bag with fewer copies is not what the source was
    key   the same by key and digest: a key may be unique only at commit, but then at most one row comes and one goes
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import DUP, KEY, OP, ORD
from lakeproof.lake.columns import merge_key
from lakeproof.lake.fold.holders import Base
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.file_rows import DIGEST
from lakeproof.lake.rows.keys_in_memory import FIRST, Numbers, codes
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
    alive[newest] = _ranks(of_row[newest]) < net[of_row[newest]]
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
    chosen = np.flatnonzero(_ranks(of) < numbers[of])
    if len(chosen) < numbers.sum():
        raise TableHeldError(str(schema.table), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": ROW_NOT_THERE})
    return stored.take(pa.array(chosen)).append_column(FIRST, pa.array(np.arange(len(chosen))))


def _signs(after: pa.Table) -> Numbers:
    is_image = pc.is_in(after.column(OP), value_set=_IMAGES).to_numpy()
    return np.where(is_image, 1, -1)


def _net(of_row: Numbers, count: int, signs: Numbers) -> tuple[Numbers, Numbers]:
    """Return how often each numbered thing came more than it went, and the places of the rows that came."""
    return np.bincount(of_row, signs, count).astype(np.int64), np.flatnonzero(signs > 0)


def _first_of(of_row: Numbers, count: int) -> Numbers:
    """Return the first place of each number."""
    first = np.empty(count, np.int64)
    first[of_row[::-1]] = np.arange(len(of_row))[::-1]
    return first


def _ranks(numbers: Numbers) -> Numbers:
    """Return for each place how many before it have the same number."""
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers)) - np.searchsorted(in_order, in_order)
    return ranks
