"""What must go and come between two states of a table, compared with counters of whole rows."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from lakeproof.hidden_columns import DUP, KEY, TEXT
from lakeproof.lake.rows import difference
from lakeproof.lake.rows.change import Unsupported
from lakeproof.lake.rows.difference import FILE, NUMBER, Side, compare, compare_rows, digests_of
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
Row = tuple[int | None, str | None]


def _version(*, bag: bool) -> SchemaVersion:
    columns = tuple(Column(n, Oid(0), -1, n, kind, i + 1, False) for i, (n, kind) in enumerate(_KINDS.items()))
    identity = Identity.FULL if bag else Identity.DEFAULT
    return SchemaVersion(TableName("public", "t"), Oid(1), identity, columns, () if bag else ("id",))


_KINDS = {"id": "int8", "note": "text"}


def _side(rows: Sequence[Row], rng: random.Random, *, placed: bool, bag: bool) -> Side:
    """The rows in batches of random sizes."""
    names = {"id": pa.int64(), "note": pa.string(), TEXT: pa.string()}
    names |= {KEY: pa.string(), DUP: pa.int64()} if placed and bag else {}
    names |= {FILE: pa.int64(), NUMBER: pa.int64()} if placed else {}
    values: dict[str, list[object]] = {
        "id": [r[0] for r in rows],
        "note": [r[1] for r in rows],
        TEXT: [None] * len(rows),
    }
    places: dict[str, list[object]] = {
        DUP: [*reversed(range(len(rows)))],
        FILE: [i // 10 for i in range(len(rows))],
        NUMBER: [*range(len(rows))],
    }
    schema = pa.schema(list(names.items()))
    if placed and bag:
        own = pa.schema([(name, names[name]) for name in values])
        places[KEY] = digests_of(_version(bag=bag), pa.table(values, own)).to_pylist()
    table = pa.table({name: (values | places)[name] for name in names}, schema)

    def read() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(rng.randrange(1, 20))

    return Side(schema, read)


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(table["id"].to_pylist(), table["note"].to_pylist(), strict=True))


def _changed(rng: random.Random, rows: list[Row], *, bag: bool) -> list[Row]:
    result = list[Row]()
    for number, note in rows:
        what = rng.random()
        if what > 0.1:
            result.append((number, rng.choice([note, note, note, None, "", "other"])))
        if bag and what < 0.05:
            result += [(number, note)] * 2
    ids = range(1000, 1000 + rng.randrange(5))
    return [*result, *((i, "new") for i in ids)]


@pytest.mark.parametrize("bag", [False, True], ids=["keyed", "bag"])
@pytest.mark.parametrize("number", range(8))
def test_persisted_and_the_difference_are_what_is_desired(number: int, *, bag: bool) -> None:
    """No row goes that comes again, and each place is that of a row that goes."""
    rng = random.Random(SEED + number)
    persisted: list[Row] = [(i if not bag else i // 3, rng.choice(["a", "b", None, ""])) for i in range(200)]
    desired = _changed(rng, persisted, bag=bag)
    rng.shuffle(desired)
    sides = _side(desired, rng, placed=False, bag=bag), _side(persisted, rng, placed=True, bag=bag)
    for result in (compare(_version(bag=bag), *sides), compare_rows(_version(bag=bag), *sides)):
        surplus, missing = Counter(persisted) - Counter(desired), Counter(desired) - Counter(persisted)
        assert (Counter(_rows(result.go)), Counter(_rows(result.come))) == (surplus, missing), f"seed {SEED}"
        assert [persisted[n] for n in result.go[NUMBER].to_pylist()] == _rows(result.go)


def test_of_equal_rows_the_first_that_came_go() -> None:
    """Their order in the file says nothing: `_lp_dup` has it."""
    rng = random.Random(SEED)
    sides = _side([(1, "a")], rng, placed=False, bag=True), _side([(1, "a")] * 4, rng, placed=True, bag=True)
    assert sorted(compare(_version(bag=True), *sides).go[DUP].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("stored", ["of other values", None])
def test_a_row_of_a_bag_under_the_key_of_another_goes(stored: str | None) -> None:
    """Later changes would look for it by that key, and take a row of other values; an equal row stays."""
    rng = random.Random(SEED)
    (batch,) = _side([(1, "a")] * 3, rng, placed=True, bag=True).rows().combine_chunks().to_batches()
    keys = pa.array([batch.column(KEY)[0].as_py()] * 2 + [stored], pa.string())
    place = batch.schema.get_field_index(KEY)
    persisted = (
        pa.Table.from_batches([batch]).set_column(place, KEY, keys).set_column(place + 1, DUP, pa.array([0, 1, 2]))
    )
    side = Side(persisted.schema, lambda: iter(persisted.to_batches()))
    for desired, go, come in ((2, [2], 0), (3, [2], 1), (1, [0, 2], 0)):
        result = compare_rows(_version(bag=True), _side([(1, "a")] * desired, rng, placed=False, bag=True), side)
        assert (sorted(result.go[NUMBER].to_pylist()), result.come.num_rows) == (go, come)


def test_all_rows_of_a_key_that_is_there_twice_come_again() -> None:
    """Whoever adds history up takes the last event of a key; equal states have nothing that comes again."""
    rng = random.Random(SEED)
    twice: list[Row] = [(1, "a"), (2, "b"), (2, "b"), (3, "c"), (3, "d")]
    persisted = _side(twice, rng, placed=True, bag=False)
    result = compare(
        _version(bag=False), _side([(1, "a"), (2, "b"), (3, "c")], rng, placed=False, bag=False), persisted
    )
    assert sorted(_rows(result.go)) == [(2, "b"), (2, "b"), (3, "c"), (3, "d")]
    assert sorted(_rows(result.come)) == [(2, "b"), (3, "c")]
    same = [_side([(1, "a"), (2, "b")], rng, placed=p, bag=False) for p in (False, True)]
    result = compare(_version(bag=False), *same)
    assert (result.go.num_rows, result.come.num_rows) == (0, 0)


def test_rows_that_may_differ_have_a_bound() -> None:
    """More of them are left to Spark before anything is written."""
    rng = random.Random(SEED)
    row, count = "x" * (1 << 20), difference.COMPARED_BYTES_MAX >> 20

    def read() -> Iterator[pa.RecordBatch]:
        for i in range(count + 1):
            yield pa.record_batch([pa.array([i]), pa.array([row]), pa.nulls(1, pa.string())], ["id", "note", TEXT])

    desired = Side(next(read()).schema, read)
    with pytest.raises(Unsupported, match="may differ from its copy take more than 256 MiB"):
        compare_rows(_version(bag=False), desired, _side([], rng, placed=True, bag=False))
