"""What the catalog says of a Relation message that repeats: the same shape, or another one behind the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.pgoutput_encoder import frames
from tests.core.pgoutput_random import resolve
from tests.core.test_pgoutput_batch import T1, relation, transaction
from wal2delta.pgoutput.batch import BatchDecoder
from wal2delta.pgoutput.messages import Insert, Relation
from wal2delta.pgoutput.relations import RelationCache
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
    batch = BatchDecoder(RelationCache(catalog)).decode(frames(*messages))
    assert len(batch.schemas) == shapes
    assert len(batch.changes) == shapes
