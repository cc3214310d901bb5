"""The threads that write a segment: order, a bounded hand-over, and errors that surface where the segment is written."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lakeproof.landing.segments.segment import SegmentLimits, SegmentWriter
from lakeproof.landing.segments.task_threads import TaskThreads
from lakeproof.lsn import Lsn
from lakeproof.storage.local import LocalFile, LocalStore
from lakeproof.storage.store import NewFile
from tests.core.landing.landing_segments import WRITER, chain_in, inserts, new_chain, version

_WAIT_S = 90.0
FILES, AT_ONCE = 20, 4


def _one(size_max: int) -> TaskThreads[None]:
    return TaskThreads("lakeproof-segment", 1, size_max)


class _SlowFile(LocalFile):
    """A file of a `_Disk`."""

    def __init__(self, disk: _Disk, path: Path, key: str, *, durable: bool) -> None:
        super().__init__(path, key, durable=durable)
        self._disk = disk

    def write(self, data: bytes) -> int:
        time.sleep(self._disk.write_s)
        if self.bytes_written > self._disk.room:
            _fail()
        return super().write(data)


class _Disk(LocalStore):
    """A store with little room for each file, or one that writes slowly."""

    def __init__(self, root: Path, room: int = 1 << 30, write_s: float = 0.0) -> None:
        super().__init__(root)
        self.room, self.write_s = room, write_s

    def create(self, key: str, *, durable: bool = True) -> NewFile:
        path = Path(self.url(key))
        path.parent.mkdir(parents=True, exist_ok=True)
        return _SlowFile(self, path, key, durable=durable)


@pytest.fixture
def gate() -> threading.Event:
    """An event for which a task waits."""
    return threading.Event()


def _pass(gate: threading.Event) -> None:
    gate.wait(_WAIT_S)


def _note(done: list[tuple[int, int]], number: int) -> None:
    done.append((number, threading.get_ident()))


def test_tasks_are_done_in_order_beside_their_submitter(gate: threading.Event) -> None:
    """A submit returns while its task is at work; the end waits for all of them."""
    thread, done = _one(100), list[tuple[int, int]]()
    thread.submit(partial(_pass, gate), 10)
    for number in range(5):
        thread.submit(partial(_note, done, number), 10)
    assert not done
    gate.set()
    thread.end()
    assert [number for number, _ in done] == list(range(5))
    assert {ident for _, ident in done} != {threading.get_ident()}
    thread.submit(partial(_note, done, 5), 10)
    assert done[-1] == (5, threading.get_ident())


@pytest.mark.parametrize(("sizes", "limit"), [([40, 40, 40], 100), ([500, 1], 100), ([10, 500], 100)])
def test_handed_over_bytes_are_bounded(gate: threading.Event, sizes: list[int], limit: int) -> None:
    """The task that would exceed the bound waits; one that alone exceeds it goes when nothing else is there."""
    thread, submitted, most = _one(limit), threading.Event(), list[int]()
    all_but_one = threading.Event()

    def submit() -> None:
        for size in sizes:
            thread.submit(partial(_pass, gate), size)
            most.append(thread.size)
            if len(most) == len(sizes) - 1:
                all_but_one.set()
        submitted.set()

    submitter = threading.Thread(target=submit)
    submitter.start()
    assert all_but_one.wait(_WAIT_S)
    assert not submitted.wait(0.2)
    assert len(most) == len(sizes) - 1
    gate.set()
    submitter.join(_WAIT_S)
    assert submitted.is_set()
    assert all(held <= max(limit, *sizes) for held in most)
    thread.end()


def _fail() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "call", [lambda t: t.submit(_fail, 1), lambda t: t.wait(), lambda t: t.end()], ids=["submit", "wait", "end"]
)
def test_an_error_is_raised_by_the_next_call(
    gate: threading.Event, call: Callable[[TaskThreads[None]], object]
) -> None:
    """No task after it is done."""
    thread, done = _one(100), list[int]()
    thread.submit(_fail, 100)
    gate.wait(0.05)
    with pytest.raises(OSError, match="No space"):
        call(thread)
    if not thread._ended:
        thread.submit(lambda: done.append(1), 1)
        with pytest.raises(OSError, match="No space"):
            thread.wait()
    thread.abandon()
    assert done == []


def test_an_abandoned_thread_does_what_it_has_begun_and_nothing_else(gate: threading.Event) -> None:
    """Whoever abandons waits for the current task, so that no file is written afterwards."""
    thread, done = _one(100), list[str]()
    begun = threading.Event()

    def first() -> None:
        begun.set()
        gate.wait(_WAIT_S)
        done.append("first")

    thread.submit(first, 1)
    thread.submit(lambda: done.append("second"), 1)
    assert begun.wait(_WAIT_S)
    threading.Timer(0.1, gate.set).start()
    thread.abandon()
    thread.abandon()
    assert done == ["first"]


def test_a_full_disk_in_the_thread_ends_the_segment(tmp_path: Path) -> None:
    """The segment's next call raises it, there is no manifest, and nothing is left."""
    chain = chain_in(_Disk(tmp_path / "lake", room=2000))
    writer = SegmentWriter(chain, WRITER, SegmentLimits(group_rows=2))
    with pytest.raises(OSError, match="No space"):
        _many(writer)
    writer.abandon()
    assert chain.lake.store.list(chain.lake.paths.data(chain.incarnation)) == []
    assert chain.newest.number == 0


def _many(writer: SegmentWriter) -> None:
    for lsn in range(1100, 1140):
        writer.add(inserts(version(), lsn, 2))
    writer.finish(Lsn(1139))


def test_a_segment_abandoned_amid_writing_leaves_nothing(tmp_path: Path) -> None:
    """The thread's file is removed too, after its last write."""
    chain = new_chain(tmp_path / "lake")
    writer = SegmentWriter(chain, WRITER, SegmentLimits(group_rows=2))
    for lsn in range(1100, 1140):
        writer.add(inserts(version(), lsn, 2))
    writer.abandon()
    assert chain.lake.store.list(chain.lake.paths.data(chain.incarnation)) == []


def test_rows_in_the_threads_hands_count_as_waiting(tmp_path: Path) -> None:
    """However slowly they are written, both together stay below the limit; `settle` waits for the thread."""
    chain = chain_in(_Disk(tmp_path / "lake", write_s=0.002))
    writer = SegmentWriter(chain, WRITER, SegmentLimits(buffered_bytes=20_000))
    handed_over = 0
    for lsn in range(1100, 1200):
        writer.add(inserts(version(f"t{lsn % 5}", oid=lsn % 5 + 1), lsn, 20))
        assert writer._buffered_bytes <= 20_000
        handed_over = max(handed_over, writer._thread.size)
    assert handed_over > 0
    writer.settle()
    assert writer._thread.size == 0
    assert writer.finish(Lsn(1199)).rows == 2000


class Together:
    """Tasks that wait until so many run at the same moment; `most` is how many ever did."""

    def __init__(self, number: int) -> None:
        self.barrier = threading.Barrier(number)
        self.lock = threading.Lock()
        self.running = self.most = 0

    def task(self, number: int) -> Callable[[], int]:
        """A task that returns its number."""

        def run() -> int:
            with self.lock:
                self.running += 1
                self.most = max(self.most, self.running)
            self.barrier.wait(_WAIT_S)
            with self.lock:
                self.running -= 1
            return number

        return run


def test_files_are_finished_together_and_keep_their_order() -> None:
    """With one at a time the first would wait for ever; more than the limit never run."""
    ends, together = TaskThreads[int]("lakeproof-file", AT_ONCE, AT_ONCE), Together(AT_ONCE)
    for number in range(FILES):
        ends.submit(together.task(number))
    assert ends.end() == list(range(FILES))
    assert together.most <= AT_ONCE


def test_an_error_comes_out_and_abandoning_waits_for_what_runs() -> None:
    """At the end at the latest; afterwards no thread is left that could still write."""
    failing = threading.Event()

    def fail() -> int:
        failing.wait(_WAIT_S)
        raise OSError("the disk is full")

    ends, running = TaskThreads[int]("lakeproof-file", AT_ONCE, AT_ONCE), threading.Event()
    ends.submit(fail)
    ends.submit(lambda: int(running.wait(30)))
    failing.set()
    with pytest.raises(OSError, match="the disk is full"):
        ends.end()
    running.set()
    ends.abandon()
    ends.abandon()
    assert not any(thread.name.startswith("lakeproof-file") for thread in threading.enumerate())
