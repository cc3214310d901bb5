"""A failure of the worker behind the stream names the thing, the reason and the remedy."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakeproof.config.model import DrainConfig
from lakeproof.drain.flush import EndSegment, Flusher
from lakeproof.drain.transactions.units import DecodeUnit
from lakeproof.errors import InvariantError
from lakeproof.landing.segments.reader import file_url
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import Begin, Commit, Insert, Relation, RelationColumn
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.schema import Identity
from tests.core.landing.landing_segments import START, WRITER, new_chain
from tests.core.pgoutput.pgoutput_encoder import frames
from tests.core.pgoutput.pgoutput_random import KIND_OIDS, resolve

T = Oid(16384)
TIME = 1_700_000_000_000_000
# Ends at the result; a loaded machine may take its time.
_WAIT_S = 600.0


def test_a_text_that_is_no_value_of_its_type_is_landed_under_a_mark(tmp_path: Path) -> None:
    """The drain goes on; what is wrong stands in the landing, exactly, for the lake to refuse it."""
    table = Relation(T, "shop", "orders", Identity.DEFAULT, (RelationColumn("id", Oid(KIND_OIDS["int4"]), -1, True),))
    end = Lsn(2000)
    inserts = (Insert(T, ("41x7",)), Insert(T, (b"\xff",)), Insert(T, ("7",)))
    raw = frames(Begin(Lsn(1990), TIME, Xid(7)), table, *inserts, Commit(Lsn(1990), end, TIME))
    chain = new_chain(tmp_path / "lake")
    flusher = Flusher(chain, BatchDecoder(RelationCache(resolve)), WRITER)
    try:
        flusher.submit(DecodeUnit([MessageBuffer.of(raw)], sum(map(len, raw)), START, end, 2), _WAIT_S)
        flusher.submit(EndSegment(), _WAIT_S)
        flushed = flusher.first(_WAIT_S)
        assert flushed is not None
    finally:
        flusher.close()
    (file,) = flushed.manifest.files
    rows = pq.read_table(file_url(chain, file), columns=["id", "_lp_text"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(None, '{"!1":"41x7"}'), (None, '{"!x1":"ff"}'), (7, None)]


def test_loops_that_can_not_be_loaded_end_the_worker_with_their_error(tmp_path: Path) -> None:
    """The worker ends before it takes any work; a caller that waits for it gets the error."""

    def fail() -> None:
        raise InvariantError("compiled loops", "they can't be loaded", "remove them")

    flusher = Flusher(new_chain(tmp_path / "lake"), BatchDecoder(RelationCache(resolve)), WRITER, prepare=fail)
    try:
        with pytest.raises(InvariantError, match="compiled loops"):
            flusher.first(_WAIT_S)
        with pytest.raises(InvariantError, match="compiled loops"):
            flusher.submit(EndSegment(), _WAIT_S)
    finally:
        assert isinstance(flusher.close(), InvariantError)


def test_what_waits_for_the_worker_is_bounded_in_bytes(tmp_path: Path) -> None:
    """The queue always takes one unit, however large; a second one only if both are within `drain.queue_bytes`."""
    hold = threading.Event()
    limits = DrainConfig(queue_bytes=1000)

    def held() -> None:
        hold.wait()

    chain, decoder = new_chain(tmp_path / "lake"), BatchDecoder(RelationCache(resolve))
    flusher = Flusher(chain, decoder, WRITER, limits=limits, prepare=held)
    try:
        for size, taken in ((600, True), (401, False), (400, True), (1, False)):
            assert flusher.submit(DecodeUnit([], size, START, Lsn(2000), 2), 0.0) is taken
    finally:
        # Closed before it may begin: what waits is dropped.
        closing = threading.Thread(target=flusher.close)
        closing.start()
        while not flusher._closing:
            time.sleep(0.001)
        hold.set()
        closing.join()
