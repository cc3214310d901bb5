"""A Relation message that repeats: the catalog says if it is the same schema, or another one behind the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeproof.lsn import Lsn
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import Insert, Relation
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.schema import SchemaVersion
from tests.core.pgoutput.pgoutput_encoder import frames
from tests.core.pgoutput.pgoutput_random import resolve
from tests.core.pgoutput.pgoutput_transactions import T1, relation, transaction


@pytest.mark.parametrize(("attnum", "versions"), [(2, 1), (9, 2), (0, 2)], ids=["as before", "made again", "unknown"])
def test_a_repeated_message_stands_for_what_the_resolver_says(attnum: int, versions: int) -> None:
    """A column created again under its name is a different column; if that is unclear, it is not treated as the old one.

    What a server's catalog gives is tested in `tests/edges/drain/test_numbers_of_unread_rows.py`.
    """
    answers = 0

    def catalog(announced: Relation, *_: object) -> SchemaVersion:
        nonlocal answers
        answers += 1
        version = resolve(announced)
        if answers == 1:
            return version
        return replace(version, columns=(version.columns[0], replace(version.columns[1], attnum=attnum)))

    messages = transaction(1, relation(), Insert(T1, ("1", "a")), relation(), Insert(T1, ("2", "b")))
    batch = BatchDecoder(RelationCache(catalog)).decode(MessageBuffer.of(frames(*messages)))
    assert len(batch.schemas) == versions
    assert len(batch.changes) == versions


def _columns(count: int) -> Relation:
    whole = relation()
    return replace(whole, columns=whole.columns[:count])


@pytest.mark.parametrize(
    ("arrived", "in_force"),
    [((99, 4), 1), ((100, 4), 2), ((250, 9), 2)],
    ids=["before the ordinary one", "right behind it", "much later"],
)
def test_what_arrived_last_is_in_force_behind_a_streamed_transaction(arrived: tuple[int, int], in_force: int) -> None:
    """Arrival counts, not commit order: the streamed transaction ends after the ordinary one in each case."""
    cache = RelationCache(resolve)
    cache.learn(_columns(1), Lsn(100))
    streamed = cache.streamed()
    assert streamed.get(T1) is None
    streamed.arrival = arrived
    streamed.learn(_columns(2))
    named_again = cache.absorb(streamed)
    version = cache.get(T1)
    assert version is not None
    assert len(version.columns) == in_force
    assert [len(version.columns) for version in named_again] == ([1] if in_force == 1 else [])


def test_of_two_streamed_transactions_the_later_chunk_counts() -> None:
    """Both arrive after the same commit, and commit in the opposite order."""
    cache = RelationCache(resolve)
    late, early = cache.streamed(), cache.streamed()
    late.arrival, early.arrival = (100, 8), (100, 7)
    late.learn(_columns(2))
    early.learn(_columns(1))
    cache.absorb(late)
    assert [len(version.columns) for version in cache.absorb(early)] == [2]
