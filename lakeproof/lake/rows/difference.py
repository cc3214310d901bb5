"""Two states of a table compared in this process: the rows of one that go, and those of the other that come.

Reading the two sides belongs to whoever compares, committing what differs to `lakeproof.lake.delta`; the same by Spark is
in `correction`.

Invariant self-correcting: persisted + difference = desired, as multisets of exact forms. The difference is minimal, but for
keys that are there twice.

    1  each side is read once, and summed up by buckets of its keys (`hashed`): counts of rows, and sums of 60-bit hashes
    2  the rows of the buckets that differ are read again, and kept; most rows of a table that is copied again are equal
    3  rows are compared by the whole digests of their exact forms; of equal rows of a bag the first that came go

That equal sums hide a difference has a chance of 2**-60 for each row that differs, which a proof leaves open, too. Memory:
the sums, and the rows of step 2, at most `COMPARED_BYTES_MAX` of each side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import DUP, KEY, scratch
from lakeproof.lake.rows.change import Mask, Numbers, codes, in_memory, ranks
from lakeproof.lake.rows.hashed import BucketSums, RowsOfBatch
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import NULL_FORM
from lakeproof.values.exact_texts import key_texts, row_digests

# One count and two sums for each bucket and side; if a thousand rows differ in a table of ten million, 1.5 % of it is kept.
BUCKETS = 1 << 16
COMPARED_BYTES_MAX = 256 << 20
_TOO_LARGE = f"the rows that may differ from its copy take more than {COMPARED_BYTES_MAX >> 20} MiB"
# Where a row is: the number of its file, and its number there.
FILE, NUMBER = scratch("file"), scratch("number")


@dataclass(frozen=True, slots=True)
class Side:
    """One of two states: `read` gives all of its rows, from the beginning each time, in batches of one `schema`.

    They have the table's columns and `_lp_text`; what is persisted has `FILE` and `NUMBER`, too, and of a bag `_lp_key` and
    `_lp_dup`.
    """

    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]

    def rows(self) -> pa.Table:
        """Return all rows; raises `Unsupported` if they take too much memory."""
        return pa.Table.from_batches(in_memory(self.read(), COMPARED_BYTES_MAX, _TOO_LARGE), self.schema)


@dataclass(frozen=True, slots=True)
class Difference:
    """What turns persisted rows into the desired ones: rows that go, with their places, and rows that come."""

    go: pa.Table
    come: pa.Table


def compare(schema: SchemaVersion, desired: Side, persisted: Side) -> Difference:
    """Compare two whole states; each is read once, and again if anything differs.

    Raises `Unsupported` if too many rows may differ, and what reading raises.
    """
    sums = [_sums(schema, side) for side in (desired, persisted)]
    differing = sums[0].differing(sums[1])
    if not differing.any():
        return Difference(persisted.schema.empty_table(), desired.schema.empty_table())
    return compare_rows(schema, *(_within(schema, side, differing) for side in (desired, persisted)))


def compare_rows(schema: SchemaVersion, desired: Side, persisted: Side) -> Difference:
    """Compare two states of few rows; raises as `compare`."""
    come, go = desired.rows(), persisted.rows()
    existing = digests_of(schema, go)
    if schema.is_bag:
        # Changes look for a row by the key that is stored: one that is not its values' is another row.
        is_own = pc.fill_null(pc.equal(go.column(KEY).combine_chunks(), existing), fill_value=False)
        existing = pc.if_else(is_own, existing, NULL_FORM)
    order = np.argsort(go.column(DUP).to_numpy(), kind="stable") if schema.is_bag else np.arange(go.num_rows)
    missing, surplus = uneven(digests_of(schema, come), existing.take(pa.array(order)))
    surplus = order[surplus]
    if not schema.is_bag:
        again = _under_doubled_keys(schema, come, go)
        missing, surplus = np.union1d(missing, again[0]), np.union1d(surplus, again[1])
    return Difference(go.take(pa.array(surplus)), come.take(pa.array(missing)))


def uneven(one: pa.Array, other: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the places of the texts that one has more often than the other, of equal ones the first; and the reverse."""
    of_one, of_other, count = _codes(one, other)
    more = np.bincount(of_one, minlength=count) - np.bincount(of_other, minlength=count)
    return np.flatnonzero(ranks(of_one) < more[of_one]), np.flatnonzero(ranks(of_other) < -more[of_other])


def _under_doubled_keys(schema: SchemaVersion, come: pa.Table, go: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the places of all rows under keys that the lake has twice.

    Whoever adds history up takes the last event of a key, so a row that stays has to come again.
    """
    of_desired, of_persisted, count = _codes(keys_of(schema, come), keys_of(schema, go))
    doubled = np.bincount(of_persisted, minlength=count) > 1
    return np.flatnonzero(doubled[of_desired]), np.flatnonzero(doubled[of_persisted])


def _codes(one: pa.Array, other: pa.Array) -> tuple[Numbers, Numbers, int]:
    """Return numbers of the texts of both, the same for the same; and how many."""
    numbers, count = codes(pa.table({"text": pa.chunked_array([one, other], pa.string())}), ["text"])
    return numbers[: len(one)], numbers[len(one) :], count


def hashed_rows(schema: SchemaVersion, rows: pa.Table) -> RowsOfBatch:
    """Return rows in memory in the form of which digests and keys are made."""
    return RowsOfBatch.of(schema, rows.combine_chunks().to_batches()[0])


def _sums(schema: SchemaVersion, side: Side) -> BucketSums:
    sums = BucketSums(schema, BUCKETS)
    sums.add_all(RowsOfBatch.of(schema, batch) for batch in side.read())
    return sums


def _within(schema: SchemaVersion, side: Side, differing: Mask) -> Side:
    """Return the side without the buckets that are equal; all rows of a key are in one bucket."""

    def read() -> Iterator[pa.RecordBatch]:
        for batch in side.read():
            yield batch.filter(pa.array(differing[RowsOfBatch.of(schema, batch).buckets(schema, BUCKETS)]))

    return Side(side.schema, read)


def digests_of(schema: SchemaVersion, rows: pa.Table) -> pa.Array:
    """Return the whole digest of each row."""
    if not rows.num_rows:
        return pa.array([], pa.string())
    hashed = hashed_rows(schema, rows)
    return row_digests(schema, hashed.columns, hashed.hidden, hashed.rows)


def keys_of(schema: SchemaVersion, rows: pa.Table) -> pa.Array:
    """Return the framed exact text of each row's key."""
    if not rows.num_rows:
        return pa.array([], pa.string())
    hashed = hashed_rows(schema, rows)
    return key_texts(schema, hashed.columns, hashed.hidden)
