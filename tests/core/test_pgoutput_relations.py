"""What the catalog says of a Relation message that repeats: the same shape, or another one behind the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.pgoutput_encoder import frames
from tests.core.pgoutput_random import resolve
from tests.core.test_pgoutput_batch import T1, relation, transaction
from wal2delta.lsn import Lsn
from wal2delta.pgoutput.batch import BatchDecoder
from wal2delta.pgoutput.messages import Insert, Relation
from wal2delta.pgoutput.relations import RelationCache
from wal2delta.pgoutput.wire import Wire
from wal2delta.schema import SchemaVersion


@pytest.mark.parametrize(("attnum", "shapes"), [(9, 2), (0, 1)], ids=["made again", "gone from the catalog"])
def test_a_column_made_again_under_its_name_is_another_column(attnum: int, shapes: int) -> None:
    """Its Relation message is the same; the catalog tells. One that the catalog has lost meanwhile is still the old one."""
    answers = 0

    def catalog(announced: Relation) -> SchemaVersion:
        nonlocal answers
        answers += 1
        version = resolve(announced)
        if answers == 1:
            return version
        return replace(version, columns=(version.columns[0], replace(version.columns[1], attnum=attnum)))

    messages = transaction(1, relation(), Insert(T1, ("1", "a")), relation(), Insert(T1, ("2", "b")))
    batch = BatchDecoder(RelationCache(catalog)).decode(Wire.of(frames(*messages)))
    assert len(batch.schemas) == shapes
    assert len(batch.changes) == shapes


@pytest.mark.parametrize(("others", "numbers"), [((1, 0), [1, 2]), ((9, 0), [9, 0])], ids=["fits", "out of order"])
def test_a_column_that_the_catalog_has_lost_is_the_one_of_the_shape_before(
    others: tuple[int, int], numbers: list[int]
) -> None:
    """Several shapes of one transaction are decoded when the catalog has the last; numbers have to be in order."""
    cache = RelationCache(resolve)
    cache.learn(relation())
    attnums = list(others)

    def behind(announced: Relation) -> SchemaVersion:
        version = resolve(announced)
        columns = zip(version.columns, [*attnums, 7], strict=False)
        return replace(version, columns=tuple(replace(c, attnum=n) for c, n in columns))

    cache._resolve = behind
    told = relation()
    third = replace(told.columns[1], name="third")
    shape = cache.learn(replace(told, columns=(*told.columns, third)))
    assert shape.version is not None
    assert [c.attnum for c in shape.version.columns] == [*numbers, 7]


def _columns(count: int) -> Relation:
    whole = relation()
    return replace(whole, columns=whole.columns[:count])


@pytest.mark.parametrize(
    ("arrived", "in_force"),
    [((99, 4), 1), ((100, 4), 2), ((250, 9), 2)],
    ids=["before the ordinary one", "right behind it", "much later"],
)
def test_what_arrived_last_is_in_force_behind_a_streamed_transaction(arrived: tuple[int, int], in_force: int) -> None:
    """Not what was committed last: the streamed transaction ends behind the ordinary one in each case."""
    cache = RelationCache(resolve)
    cache.learn(_columns(1), Lsn(100))
    streamed = cache.streamed()
    assert streamed.get(T1) is None
    streamed.arrival = arrived
    streamed.learn(_columns(2))
    named_again = cache.absorb(streamed)
    shape = cache.get(T1)
    assert shape is not None
    assert len(shape.relation.columns) == in_force
    assert [len(version.columns) for version in named_again] == ([1] if in_force == 1 else [])


def test_of_two_streamed_transactions_the_later_chunk_counts() -> None:
    """Both arrived behind the same commit; the order of their commits is the other one."""
    cache = RelationCache(resolve)
    late, early = cache.streamed(), cache.streamed()
    late.arrival, early.arrival = (100, 8), (100, 7)
    late.learn(_columns(2))
    early.learn(_columns(1))
    cache.absorb(late)
    assert [len(version.columns) for version in cache.absorb(early)] == [2]
