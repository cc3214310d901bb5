"""A range added up from its key columns: the same as from all rows, one after the other, in a dictionary."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED
from lakeproof.lake.fold.key_fold import KeyFold, fold_keys, keyed_change
from lakeproof.lake.records.held import HeldCause, TableHeldError
from lakeproof.lake.rows.change import FIRST, Numbers, Removed, Unsupported
from lakeproof.lake.rows.file_rows import DIGEST, LandedRange
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import Slice, slices
from lakeproof.landing.segments.segment import SegmentLimits, SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.rows import Batch, TableBatch
from lakeproof.schema import Identity
from tests.core.landing.landing_segments import START, WRITER, inserts, new_chain, version

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TABLE = version()
# Changes of every kind.
_MIXED = ChangeCounts(inserts=1, updates=1, deletes=1, befores=1)
# The limits of the type, and few others, so that keys come back.
KEYS = (-(1 << 31), (1 << 31) - 1, 0, 1, 2, 3, 4, 5)


@dataclass
class Model:
    """The source's keys, and every change so far: (position, op, key)."""

    rng: random.Random
    alive: set[int] = field(default_factory=set)
    changes: list[tuple[int, str, int]] = field(default_factory=list)

    def transaction(self, lsn: int) -> list[tuple[int, str, int]]:
        """Return one transaction's rows."""
        rows: list[tuple[int, str, int]] = []
        for _ in range(self.rng.randrange(1, 6)):
            key, other = self.rng.choice(KEYS), self.rng.choice(KEYS)
            if key not in self.alive:
                rows.append((lsn, "insert", key))
                self.alive.add(key)
            elif self.rng.random() < 0.4:
                rows.append((lsn, "delete", key))
                self.alive.remove(key)
            elif other in self.alive:
                rows.append((lsn, "update", key))
            else:
                rows += [(lsn, "before", key), (lsn, "update", other)]
                self.alive ^= {key, other}
        self.changes += rows
        return rows


def _batch(rows: list[tuple[int, str, int]]) -> Batch:
    batch = inserts(TABLE, rows[0][0], len(rows))
    changes, ops = batch.changes[0], [op for _, op, _ in rows]
    columns = dict(zip(changes.rows.schema.names, changes.rows.columns, strict=True))
    columns["_lp_op"] = pa.array(ops).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
    columns["c0"] = pa.array([key for _, _, key in rows], pa.int32())
    counts = ChangeCounts(ops.count("insert"), ops.count("update"), ops.count("delete"), befores=ops.count("before"))
    changed = TableBatch(TABLE, pa.record_batch(list(columns.values()), schema=changes.rows.schema), counts)
    batch.changes[0] = changed
    return batch


def _land(rng: random.Random, chain: Chain, model: Model) -> list[int]:
    """Land segments of several transactions; return the positions of their commits."""
    lsn, ends = START.value, list[int]()
    for _ in range(rng.randrange(1, 4)):
        # One open file: another table between two transactions ends it, so the table has several in a segment.
        writer = SegmentWriter(chain, WRITER, SegmentLimits(buffered_bytes=1, open_files=1))
        for _ in range(rng.randrange(1, 5)):
            lsn += 10
            writer.add(_batch(model.transaction(lsn)))
            ends.append(lsn)
            if rng.random() < 0.4:
                writer.add(inserts(version("other", oid=9), lsn, 1))
        writer.finish(Lsn(lsn))
    return ends


def _range(chain: Chain, start: int, end: int, moved: int = 0) -> LandedRange:
    pieces = list(slices(chain, Lsn(start), Lsn(end), TABLE.table))
    return LandedRange(TABLE, pieces, {p.number: p.first_ordinal + moved for p in pieces}, Lsn(start), Lsn(end))


def _check(fold: KeyFold, model: Model, start: int, end: int) -> None:
    """Keys, what they presuppose, and the rows of each file that are in the range and alive."""
    chosen = [number for number, (lsn, _, _) in enumerate(model.changes) if start < lsn <= end]
    first, last = dict[int, int](), dict[int, int]()
    for number in chosen:
        first.setdefault(model.changes[number][2], number)
        last[model.changes[number][2]] = number
    ops = {number: op for number, (_, op, _) in enumerate(model.changes)}
    # A key that is first touched by the new half of a move has no row before.
    presupposed = {key for key, n in first.items() if ops[n] != "insert" and ops.get(n - 1) != "before"}
    alive = sorted(number for number in last.values() if ops[number] in {"insert", "update"})
    assert isinstance(fold.removed, Removed)
    keys = fold.removed.rows
    firsts = dict(zip(keys["id"].to_pylist(), keys[FIRST].to_pylist(), strict=True))
    assert set(firsts) == set(first)
    assert {key for key, ordinal in firsts.items() if ordinal is not None} == presupposed
    assert fold.removed.presupposed == len(presupposed)
    assert sum(int(f.in_range.sum()) for f in fold.files) == len(chosen)
    kept = list[int]()
    for file in fold.files:
        assert not (file.alive & ~file.in_range).any()
        with file.piece.open() as opened:
            rows = opened.read(["id", ORD]).filter(pa.array(file.alive))
        kept += rows["id"].to_pylist()
    assert sorted(kept) == sorted(model.changes[number][2] for number in alive)


@pytest.mark.parametrize("round_", [*range(8), *(pytest.param(n, marks=pytest.mark.full) for n in range(8, 40))])
def test_random_ranges_are_added_up_as_their_changes_one_by_one(tmp_path: Path, round_: int) -> None:
    """Several files in a segment, ends inside files, the second range of a file, moved ordinals, batches of few rows."""
    print(f"LAKEPROOF_SEED={SEED} round {round_}")  # noqa: T201  (to run a failure again)
    rng = random.Random(f"{SEED}/{round_}")
    chain, model = new_chain(tmp_path / "lake"), Model(rng)
    ends = _land(rng, chain, model)
    middle = rng.choice(ends)
    for start, end in ((START.value, middle), (middle, ends[-1])):
        if start < end:
            fold = fold_keys(
                _range(chain, start, end, moved=rng.choice([0, 1000])), _MIXED, None, rows_at_once=rng.randrange(1, 5)
            )
            _check(fold, model, start, end)


def test_inserts_alone_are_all_alive_and_touch_no_key(tmp_path: Path) -> None:
    """A range that ends inside the file takes the rows up to there."""
    chain = new_chain(tmp_path / "lake")
    writer = SegmentWriter(chain, WRITER)
    for lsn in (1010, 1020, 1030):
        writer.add(inserts(TABLE, lsn, 1))
    writer.finish(Lsn(1030))
    fold = fold_keys(_range(chain, 1010, 1020), ChangeCounts(inserts=1), None)
    assert fold.removed is None
    assert [file.alive.tolist() for file in fold.files] == [[False, True, False]]


@dataclass
class _Noting:
    """A file that notes how many rows are read of it."""

    file: pq.ParquetFile
    read: list[int]

    def iter_batches(self, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in self.file.iter_batches(*given, **named):
            self.read.append(batch.num_rows)
            yield batch


@dataclass(frozen=True)
class _NotedSlice(Slice):
    """A slice whose file is one of them."""

    read: list[int] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[Any]:
        with Slice.open(self) as file:
            yield _Noting(file, self.read)


def test_keys_above_the_limit_are_not_read_to_the_end(tmp_path: Path) -> None:
    """The limit ends the reading inside a file, which may hold one transaction of any size."""
    chain = new_chain(tmp_path / "lake")
    writer = SegmentWriter(chain, WRITER)
    writer.add(inserts(TABLE, 1010, 1000))
    writer.finish(Lsn(1010))
    range_ = _range(chain, 1000, 1010)
    (piece,) = range_.slices
    noted = _NotedSlice(piece.chain, piece.number, piece.first_ordinal, piece.file, piece.whole)
    with pytest.raises(Unsupported, match="keys take more than"):
        fold_keys(replace(range_, slices=(noted,)), _MIXED, None, key_bytes_max=10_000, rows_at_once=100)
    assert 0 < sum(noted.read) < 1000


@dataclass(frozen=True)
class _Before:
    """A table before a range, by its rows."""

    rows: pa.Table

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        return self.rows.filter(pc.is_in(self.rows.column("id"), keys.column("id").combine_chunks())).select(columns)

    def counts(self, keys: pa.Table) -> Numbers:
        existing = self.rows.column("id").to_pylist()
        return np.array([existing.count(key) for key in keys.column("id").to_pylist()], np.int64)


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        ([("insert", 1, "a")], [True]),
        ([("delete", 2, "a")], [False]),
        ([("before", 2, "a"), ("update", 2, "b")], [False, True]),
        ([("before", 2, "a"), ("update", 2, "b"), ("before", 2, "b"), ("update", 2, "c")], [False, False, False, True]),
        ([("insert", 2, "b"), ("delete", 2, "a")], [True, False]),
        ([("insert", 1, "a"), ("insert", 1, "b")], None),
        ([("delete", 2, "a"), ("delete", 2, "b")], None),
        ([("insert", 2, "b")], None),
        ([("insert", 3, "a"), ("insert", 3, "b"), ("delete", 3, "a")], [False, True, False]),
    ],
)
def test_a_configured_key_is_held_only_if_two_rows_would_have_it(
    changes: list[tuple[str, int, str]], alive: list[bool] | None
) -> None:
    """The table has a row under key 2. At commit a key has one row; between a transaction's changes it may have more."""
    ops, keys, digests = (pa.array(column) for column in zip(*changes, strict=True))
    after = pa.table([keys, digests, ops, pa.array(range(len(changes)), pa.int64())], ["id", DIGEST, OP, ORD])
    schema, before = replace(TABLE, identity=Identity.FULL), _Before(pa.table({"id": [2]}))
    if alive is None:
        with pytest.raises(TableHeldError) as held:
            keyed_change(schema, after, before)
        assert held.value.cause is HeldCause.KEY_NOT_UNIQUE
    else:
        assert keyed_change(schema, after, before)[0].tolist() == alive


def test_values_that_updates_leave_out_come_from_the_row_that_set_them(tmp_path: Path) -> None:
    """A change of the range, or the table's row: which may itself name another, or keep the value as a text beside it."""
    chain = new_chain(tmp_path / "lake")
    batch = _batch([(1010, "update", key) for key in (1, 2, 3, 4, 4)])
    (changed,) = batch.changes
    columns = dict(zip(changed.rows.schema.names, changed.rows.columns, strict=True))
    columns[UNCHANGED] = pa.array([[1], [1], [1], None, [1]], pa.list_(pa.int16()))
    columns["c1"] = pa.array([None, None, None, "of the range", None])
    rows = pa.record_batch(list(columns.values()), schema=changed.rows.schema)
    batch.changes[0] = TableBatch(TABLE, rows, ChangeCounts(updates=5, unchanged=4))
    writer = SegmentWriter(chain, WRITER)
    writer.add(batch)
    writer.finish(Lsn(1010))
    notes, hidden = pa.array(["of the lake", "of an older row", None]), [None, None, '{"2":"too long"}']
    stored = {"id": pa.array([1, 2, 3], pa.int32()), "note": notes, TEXT: pa.array(hidden, pa.string())}
    before = _Before(pa.table(stored | {ORD: pa.array([40, 41, 42]), FROM: [None, '{"2":7}', None]}))
    landed = _range(chain, 1000, 1010, moved=100)
    folded = fold_keys(landed, ChangeCounts(updates=5, unchanged=4), before)
    (file,) = folded.files
    (history,) = folded.history([(file, file.in_range)])
    first = landed.first_ordinals[1]
    named = ['{"2":40}', '{"2":7}', '{"2":42}', None, f'{{"2":{first + 3}}}']
    assert history.column(FROM).to_pylist() == named
    (current,) = folded.current([(file, file.alive)])
    assert current.select(["id", "note", TEXT]).to_pylist() == [
        {"id": 1, "note": "of the lake", TEXT: None},
        {"id": 2, "note": "of an older row", TEXT: None},
        {"id": 3, "note": None, TEXT: '{"2":"too long"}'},
        {"id": 4, "note": "of the range", TEXT: None},
    ]
