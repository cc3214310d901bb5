"""The worker thread behind the stream: it decodes units and writes segments, in the order submitted.

The thread that owns the connection (`loop.py`) reads the stream and acknowledges. A slow disk stops the worker, never that
thread: the server still gets its answers.

Memory: `drain.queue_bytes` of messages are with the worker or wait for it (or one large transaction, or one message that is
larger; `drain.spill_bytes` limits what large transactions keep in memory), one unit is decoded at a time, and
`lakeproof.landing.segments.segment` limits a segment's rows, which a thread of its own writes meanwhile. A unit of large
values is decoded only when that thread has nothing in hand.

A segment's end is mostly waiting for the disk or the store: `segment_ends.py` does that in a third thread, while the worker
goes on with the next segment. The next one's end waits for it, and so does a reading of the catalog.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakeproof.config.model import DrainConfig
from lakeproof.drain.catalog.watch import CatalogWatch
from lakeproof.drain.segment_ends import Flushed, SegmentEnds
from lakeproof.drain.transactions.units import UNIT_BYTES, DecodeUnit, LargeTransaction
from lakeproof.drain.worker_errors import translated
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.segment import SegmentLimits, SegmentStart, SegmentWriter
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.messages import Origin
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TransactionInfo
from lakeproof.pgoutput.warm_up import warm_up_decoder

# For the last reading of a session; if it takes longer, the next session does it.
_LOOK_WAIT_S = 10.0
_LOOK_STEP_S = 0.02
# A unit has `UNIT_BYTES` and one read more, unless it has a value of megabytes.
_LARGE_BYTES = 2 * UNIT_BYTES


@dataclass(frozen=True, slots=True)
class EndSegment:
    """End the segment at the end of the last unit, and make it durable; does nothing if no unit has come since."""


@dataclass(frozen=True, slots=True)
class Look:
    """Read the catalog once more, after all work submitted before; `last` in a session."""

    last: bool = False


Work: TypeAlias = DecodeUnit | LargeTransaction | EndSegment | Look


def _load_loops() -> None:
    warm_up_decoder()
    # It loads the compiler, which a process that never decodes does without.
    from lakeproof.landing.segments import row_sums

    row_sums.warm_up_sums()


class Flusher:
    """The worker thread of one connection; `close` ends it. All methods are for the thread that created it.

    The worker runs `prepare` first, then `watch`, and `watch` again whenever it is due and no segment is open. `limits` has
    `queue_bytes` (by default four units, so that the worker always has work) and the limits of a segment.
    """

    def __init__(
        self,
        chain: Chain,
        decoder: BatchDecoder,
        writer: str,
        watch: CatalogWatch | None = None,
        limits: DrainConfig | None = None,
        *,
        prepare: Callable[[], None] = _load_loops,
    ) -> None:
        limits = limits or DrainConfig()
        self._queue_bytes_max = limits.queue_bytes
        self._prefixes = frozenset(limits.messages or ())
        self._segment_limits = SegmentLimits(limits.segment_bytes, limits.segment_files)
        self._chain = chain
        self._watch = watch
        self._decoder = decoder
        self._prepare = prepare
        self._writer = writer
        self._segment: SegmentWriter | None = None
        # Where the next segment begins while one is being ended; None is the chain's end.
        self._next_start: SegmentStart | None = None
        self._ends = SegmentEnds(self._published, self._fail)
        # The end of the last unit: the next one must start there.
        self._reached = chain.end
        self._changed = threading.Condition()
        self._queue: deque[tuple[Work, int]] = deque()
        self._queued_bytes = 0
        # True until the first reading is over, so that a thread that has not begun does not look idle.
        self._busy = watch is not None
        self._publishing = False
        self._closing = False
        self._flushed: deque[Flushed] = deque()
        self._ending = 0
        self._failure: BaseException | None = None
        # The large transaction being decoded: bytes done, bytes in all. Only the worker sets it.
        self._large: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._run, name="lakeproof-flush")
        self._thread.start()

    @property
    def uncollected(self) -> list[Flushed]:
        """After `close`: the durable results that nobody has collected."""
        return list(self._flushed)

    @property
    def ending(self) -> int:
        """The number of submitted segment ends whose results are not collected yet."""
        with self._changed:
            return self._ending

    @property
    def decoding(self) -> tuple[int, int] | None:
        """The decoded and the total bytes of the large transaction being decoded; None if there is none."""
        return self._large

    @property
    def idle(self) -> bool:
        """True if all submitted work was done without an error, and its results are collected."""
        with self._changed:
            return not (self._works or self._flushed or self._failure)

    def submit(self, work: Work, timeout_s: float) -> bool:
        """Hand over; False if the queue stayed full for `timeout_s` seconds. Raises the worker's error."""
        size = (
            work.size
            if isinstance(work, DecodeUnit)
            else work.memory_bytes
            if isinstance(work, LargeTransaction)
            else 0
        )
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(size), timeout_s):
                return False
            self._raise_failure()
            self._queue.append((work, size))
            self._queued_bytes += size
            self._ending += isinstance(work, EndSegment)
            self._changed.notify_all()
        return True

    def first(self, timeout_s: float = 0.0) -> Flushed | None:
        """Return the first result that is not `collected`; waits up to `timeout_s` seconds. Raises the worker's error."""
        with self._changed:
            self._changed.wait_for(lambda: self._flushed or self._failure is not None, timeout_s)
            if not self._flushed:
                self._raise_failure()
            return self._flushed[0] if self._flushed else None

    def collected(self) -> None:
        """Remove the first result, which has been processed."""
        with self._changed:
            self._flushed.popleft()
            self._ending -= 1

    def wait(self) -> None:
        """Wait until all submitted work is done or has failed; results stay uncollected."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._works)

    def look(self) -> None:
        """Read the catalog once more and wait for that; nothing else may be submitted meanwhile. Raises as `first`."""
        self.submit(Look(last=True), _LOOK_WAIT_S)
        deadline = time.monotonic() + _LOOK_WAIT_S
        while not self.idle and time.monotonic() < deadline:
            self.first(_LOOK_STEP_S)

    def close(self) -> BaseException | None:
        """End the threads after their current work and drop the rest; returns the worker's error, None if it had none.

        A manifest that the last work appended is in the chain, acknowledged or not.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        for work, _ in self._queue:
            if isinstance(work, LargeTransaction):
                work.close()
        self._queue.clear()
        self._ends.close()
        if self._segment is not None:
            self._segment.abandon()
        return self._failure

    @property
    def _works(self) -> bool:
        return bool(self._queue) or self._busy or self._publishing

    def _has_room(self, size: int) -> bool:
        return self._failure is not None or not self._queued_bytes or self._queued_bytes + size <= self._queue_bytes_max

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _next(self) -> tuple[Work, int] | None:
        """Return the next work and its size: a reading of the catalog if one is due, else the oldest; None at the end.

        The caller holds the lock.
        """
        while not self._closing and self._failure is None:
            look_in_s = self._look_in_s()
            if look_in_s == 0:
                work: tuple[Work, int] = (Look(), 0)
            elif self._queue:
                work = self._queue.popleft()
            else:
                self._changed.wait(look_in_s)
                continue
            self._busy = True
            return work
        return None

    def _look_in_s(self) -> float | None:
        """Return the seconds until the catalog is to be read; None without a watch, or while a segment is open."""
        if self._watch is None or self._segment is not None:
            return None
        return 0 if self._watch.due else self._watch.wait_s

    def _run(self) -> None:
        # While the first messages arrive: loading the loops takes 0.7 s, compiling them on a new machine 5 s.
        try:
            self._prepare()
        except BaseException as error:  # noqa: BLE001  as below
            with self._changed:
                self._failure = translated(error, self._chain)
                self._changed.notify_all()
            return
        while True:
            with self._changed:
                following = self._next()
                if following is None:
                    return
                work, size = following
            failure: BaseException | None = None
            try:
                self._do(work)
            except BaseException as error:  # noqa: BLE001  raised again in the thread that owns the connection
                failure = error
            with self._changed:
                self._busy = False
                self._queued_bytes -= size
                self._changed.notify_all()
            if failure is not None:
                self._fail(failure)
                return

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or translated(error, self._chain)
            self._changed.notify_all()

    def _do(self, work: Work) -> None:
        if isinstance(work, EndSegment):
            self._end()
            return
        if isinstance(work, Look):
            if self._watch is not None and self._segment is None:
                self._ends.wait()
                self._next_start = None
                self._watch.look(last=work.last)
            return
        self._check_continues(work)
        if self._segment is None:
            self._segment = SegmentWriter(self._chain, self._writer, self._segment_limits, self._next_start)
        if isinstance(work, DecodeUnit):
            self._decode(work, self._segment)
        else:
            self._decode_large(work, self._segment)
        self._reached = work.end_lsn

    def _check_continues(self, unit: DecodeUnit | LargeTransaction) -> None:
        """Check the invariant no-gap, inside a segment too."""
        if unit.start_lsn != self._reached or unit.end_lsn <= unit.start_lsn:
            raise InvariantError(
                f"landing {self._chain.lake.url(self._chain.lake.paths.landing(self._chain.incarnation))}",
                f"after {self._reached} came what lies between {unit.start_lsn} and {unit.end_lsn}",
                "nothing of it was landed or acknowledged; report this",
            )

    def _decode(self, work: DecodeUnit, segment: SegmentWriter) -> None:
        if work.buffers:
            if work.size > _LARGE_BYTES:
                segment.settle()
            batch = self._decoder.decode(*work.buffers)
            work.buffers.clear()
            failpoint("drain.decoded")
            self._add(batch, self._looked(batch, segment))

    def _looked(self, batch: Batch, segment: SegmentWriter, *, within: bool = False) -> SegmentWriter:
        """Return the segment for the batch: one from after a reading that it calls for.

        Raises PartitionAmidError after that reading if the segment has an earlier part of the transaction, or what looking
        raises.
        """
        if self._watch is None or not self._watch.passed(batch.partitions):
            return segment
        self._ends.wait()
        if within:
            segment.abandon()
            self._watch.look_amid()
        if self._reached == self._chain.end:
            segment.abandon()
        else:
            with self._changed:
                self._ending += 1
            self._end()
            self._ends.wait()
        self._next_start = None
        self._watch.look()
        self._segment = SegmentWriter(self._chain, self._writer, self._segment_limits)
        return self._segment

    def _add(self, batch: Batch, segment: SegmentWriter) -> None:
        if batch.logical_messages:
            # The server sends all logical messages or none.
            kept = [
                n for n in batch.logical_messages if isinstance(n.message, Origin) or n.message.prefix in self._prefixes
            ]
            batch = replace(batch, logical_messages=kept)
        segment.add(batch)
        if self._watch is not None:
            for schema in batch.schemas:
                self._watch.saw(schema.version)

    def _decode_large(self, work: LargeTransaction, segment: SegmentWriter) -> None:
        """Decode in parts, so that memory does not grow with the transaction; the manifest still counts it once."""
        info = TransactionInfo(work.end_lsn, work.xid, work.commit_time_us)
        seq = done = 0
        counted = False
        self._large = 0, work.size
        # A streamed transaction's rows have the schemas that it announces itself.
        ordinary = self._decoder.relations
        relations = ordinary.streamed() if work.streamed else ordinary
        decoder = BatchDecoder(relations) if work.streamed else self._decoder
        try:
            for part in work.parts():
                relations.arrival = part.arrival
                size = part.buffer.size
                if size > _LARGE_BYTES:
                    segment.settle()
                batch = decoder.decode_part(part.buffer, info, seq)
                del part
                failpoint("drain.decoded")
                segment = self._looked(batch, segment, within=done > 0)
                self._add(replace(batch, transactions=1 if batch.rows and not counted else 0), segment)
                counted = counted or batch.rows > 0
                seq = batch.next_seq
                done += size
                self._large = done, work.size
            if work.streamed:
                segment.announce([SchemaInForce(v, work.end_lsn, seq) for v in ordinary.absorb(relations)])
        finally:
            self._large = None
            work.close()

    def _end(self) -> None:
        """Seal the segment, wait until the one before it is in the chain, and let this one follow."""
        if self._segment is None:
            with self._changed:
                self._ending -= 1
            return
        begun = time.monotonic()
        self._next_start = self._segment.seal(self._reached)
        self._ends.wait()
        with self._changed:
            self._publishing = True
        self._ends.begin(self._segment, None if self._watch is None else self._watch.catalog_lsn, begun)
        self._segment = None

    def _published(self, flushed: Flushed) -> None:
        """In the ending thread: a result can be collected."""
        with self._changed:
            self._publishing = False
            self._flushed.append(flushed)
            self._changed.notify_all()
