"""A segment is decoded while the one before it ends: in order, or not at all."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from lakeproof.drain.catalog.watch import CatalogWatch
from lakeproof.drain.flush import EndSegment, Flusher, Look
from lakeproof.drain.transactions.units import DecodeUnit
from lakeproof.errors import LakeError
from lakeproof.failpoints import watched
from lakeproof.landing.chain import Chain, FencedError
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.relations import RelationCache
from tests.core.drain.pretend_server import PretendServer, landed
from tests.core.landing.landing_segments import OTHER_WRITER, START, WRITER, add_segment, new_chain, reopen
from tests.core.pgoutput.pgoutput_encoder import frames
from tests.core.pgoutput.pgoutput_random import resolve

# A loaded machine may take its time; a worker that waits for the ending segment fails the test after this.
_WAIT_S = 60.0


@contextmanager
def _flusher(chain: Chain, watch: CatalogWatch | None = None) -> Iterator[Flusher]:
    flusher = Flusher(chain, BatchDecoder(RelationCache(resolve)), WRITER, watch)
    try:
        yield flusher
    finally:
        flusher.close()


def _units(server: PretendServer, sizes: list[int]) -> list[DecodeUnit]:
    units, start = list[DecodeUnit](), server.end
    for size in sizes:
        transaction = server.commit(size)
        raw = frames(*transaction.messages)
        units.append(DecodeUnit([MessageBuffer.of(raw)], sum(map(len, raw)), start, transaction.end, size))
        start = transaction.end
    return units


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)


def test_a_segment_is_decoded_while_the_one_before_it_ends(tmp_path: Path) -> None:
    """The end of each is held until the next is decoded; their order, ordinals and rows are the stream's."""
    chain, server = new_chain(tmp_path / "lake"), PretendServer()
    units = _units(server, [3, 5, 0, 4])
    decoded, overlaps = [threading.Event() for _ in units], list[bool]()

    def hold(name: str) -> None:
        if name == "drain.decoded":
            next(event for event in decoded if not event.is_set()).set()
        elif name == "drain.after_data_files" and len(overlaps) < len(units) - 1:
            following = len(overlaps) + 1
            overlaps.append(decoded[following].wait(_WAIT_S))

    with watched(hold), _flusher(chain) as flusher:
        for unit in units:
            flusher.submit(unit, _WAIT_S)
            flusher.submit(EndSegment(), _WAIT_S)
        flusher.wait()
        results = list[Lsn]()
        while (flushed := flusher.first()) is not None:
            results.append(flushed.manifest.end_lsn)
            flusher.collected()
        assert flusher.idle
    assert overlaps == [True] * (len(units) - 1)
    assert results == [unit.end_lsn for unit in units]
    assert landed(reopen(chain)) == server.rows


def test_nothing_follows_a_segment_whose_end_fails(tmp_path: Path) -> None:
    """The next one is decoded and even ended by then; neither is visible, and their files are gone."""
    chain, server = new_chain(tmp_path / "lake"), PretendServer()
    units = _units(server, [3, 5])
    decoded = list[str]()

    def fail(name: str) -> None:
        if name == "drain.decoded":
            decoded.append(name)
        elif name == "drain.after_data_files":
            _until(lambda: len(decoded) == len(units))
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with watched(fail), _flusher(chain) as flusher:
        for unit in units:
            flusher.submit(unit, _WAIT_S)
            flusher.submit(EndSegment(), _WAIT_S)
        flusher.wait()
        with pytest.raises(LakeError, match="Input/output error"):
            flusher.first(_WAIT_S)
        assert not flusher.idle
    again = reopen(chain)
    assert (again.end, again.next_number) == (START, 1)
    assert list(chain.lake.store.list(chain.lake.paths.data(chain.incarnation))) == []


def test_a_writer_that_was_replaced_adds_neither_segment(tmp_path: Path) -> None:
    """Another writer takes the ending segment's number while the next one is decoded."""
    chain, server = new_chain(tmp_path / "lake"), PretendServer()
    units = _units(server, [3, 5])
    decoded = list[str]()

    def replace(name: str) -> None:
        if name == "drain.decoded":
            decoded.append(name)
        elif name == "drain.after_data_files" and threading.current_thread() is not threading.main_thread():
            _until(lambda: len(decoded) == len(units))
            other.set()
            assert went_on.wait(_WAIT_S)

    other, went_on = threading.Event(), threading.Event()
    with watched(replace), _flusher(chain) as flusher:
        for unit in units:
            flusher.submit(unit, _WAIT_S)
            flusher.submit(EndSegment(), _WAIT_S)
        assert other.wait(_WAIT_S)
        winner = add_segment(reopen(chain), 5000, writer=OTHER_WRITER)
        went_on.set()
        with pytest.raises(FencedError):
            flusher.first(_WAIT_S)
    again = reopen(chain)
    assert [manifest.writer for manifest in again.manifests(1)] == [OTHER_WRITER]
    assert again.newest == winner


class _Watch:
    """A watch that is due when asked for, and notes the chain's end at each look."""

    catalog_lsn = None
    wait_s = _WAIT_S
    due = False

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.ends: list[Lsn] = []

    def look(self, *, last: bool) -> None:
        """Note where the chain ends."""
        del last
        self.ends.append(self._chain.end)

    def saw(self, version: object) -> None:
        """Nothing becomes due."""

    def passed(self, partitions: object) -> bool:
        """No partition is announced."""
        del partitions
        return False


def test_a_reading_of_the_catalog_waits_for_the_ending_segment(tmp_path: Path) -> None:
    """What it appends comes behind the segment, and what it looks at in the chain is there."""
    chain, server = new_chain(tmp_path / "lake"), PretendServer()
    (unit,) = _units(server, [3])
    watch = _Watch(chain)

    def hold(name: str) -> None:
        if name == "drain.after_data_files":
            time.sleep(0.3)

    with watched(hold), _flusher(chain, cast(CatalogWatch, watch)) as flusher:
        flusher.submit(unit, _WAIT_S)
        flusher.submit(EndSegment(), _WAIT_S)
        flusher.submit(Look(), _WAIT_S)
        flusher.wait()
    assert watch.ends == [unit.end_lsn]
