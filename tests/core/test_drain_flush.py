"""What the worker behind the stream fails with says the thing, the reason and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.landing_segments import WRITER, new_chain
from tests.core.pgoutput_encoder import frames
from tests.core.pgoutput_random import KIND_OIDS, resolve
from wal2delta.drain.flush import Flusher
from wal2delta.drain.units import Unit
from wal2delta.errors import SourceError
from wal2delta.lsn import Lsn
from wal2delta.names import Oid, Xid
from wal2delta.pgoutput.batch import BatchDecoder
from wal2delta.pgoutput.messages import Begin, Commit, Insert, Relation, RelationColumn
from wal2delta.pgoutput.relations import RelationCache
from wal2delta.schema import Identity

T = Oid(16384)
TIME = 1_700_000_000_000_000
# Ends at the result; a loaded machine may take its time.
_WAIT_S = 60.0


def test_a_text_that_is_no_value_of_its_type_names_table_column_and_remedy(tmp_path: Path) -> None:
    """The column is decoded under a wrong shape: nothing is guessed, nothing acknowledged, and the text is not shown."""
    table = Relation(T, "shop", "orders", Identity.DEFAULT, (RelationColumn("id", Oid(KIND_OIDS["int4"]), -1, True),))
    end = Lsn(2000)
    raw = frames(Begin(Lsn(1990), TIME, Xid(7)), table, Insert(T, ("41x7",)), Commit(Lsn(1990), end, TIME))
    chain = new_chain(tmp_path / "lake")
    flusher = Flusher(chain, BatchDecoder(RelationCache(resolve)), WRITER)
    try:
        flusher.submit(Unit(raw, sum(map(len, raw)), end, 1), _WAIT_S)
        with pytest.raises(SourceError, match=r"table shop\.orders: column id: 1 text") as caught:
            flusher.take(_WAIT_S)
    finally:
        flusher.close()
    assert "as_text" in caught.value.remedy
    assert "41x7" not in f"{caught.value}{caught.value.__cause__}"
    assert chain.next_number == 1
