"""The worker behind the stream: it decodes units, writes segments and appends manifests, in the order they were submitted.

Reading the stream and acknowledging belong to the thread that owns the connection (`loop.py`). A slow disk stops this
thread, never that one: the server is answered all the same.

Memory: `drain.queue_bytes` of messages are in the worker's hands or wait for it (or one large transaction, or one message
that is larger; `drain.spill_bytes` bounds what large transactions keep in memory), one unit is decoded at a time, and a
segment's rows are bounded by `lakeproof.landing.segment`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from lakeproof.config.model import DrainConfig
from lakeproof.drain.catalog_watch import CatalogWatch
from lakeproof.drain.transactions.units import LargeTransaction, Unit
from lakeproof.errors import InvariantError, LakeproofError, SourceError
from lakeproof.failpoints import failpoint
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest
from lakeproof.landing.segment import SegmentLimits, SegmentWriter
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.decoder import ProtocolError
from lakeproof.pgoutput.messages import Origin
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TransactionInfo
from lakeproof.pgoutput.warm_up import warm_up
from lakeproof.storage.disk import disk_error

# For the last look of a session; where it takes longer, the next session has it.
_LOOK_WAIT_S = 10.0
_LOOK_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class EndSegment:
    """End the segment where the last unit ended, and make it durable; nothing, where none has come since the last end."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """A manifest that is durable, and how long its segment's writing and syncing took."""

    manifest: Manifest
    seconds: float


@dataclass(frozen=True, slots=True)
class Look:
    """Look at the catalog once more, after all that was submitted before; `last` in a session."""

    last: bool = False


Work: TypeAlias = Unit | LargeTransaction | EndSegment | Look


class Flusher:
    """The worker thread of one connection; `close` ends it. All methods are for the thread that made it.

    `watch` is looked after by the worker: before anything else, and whenever it is due and no segment is open. `limits`
    gives `queue_bytes` (by default four units, so that the worker always finds work) and those of a segment.
    """

    def __init__(
        self,
        chain: Chain,
        decoder: BatchDecoder,
        writer: str,
        watch: CatalogWatch | None = None,
        limits: DrainConfig | None = None,
    ) -> None:
        limits = limits or DrainConfig()
        self._queue_bytes_max = limits.queue_bytes
        self._prefixes = frozenset(limits.messages or ())
        self._segment_limits = SegmentLimits(limits.segment_bytes, limits.segment_files)
        self._chain = chain
        self._watch = watch
        self._decoder = decoder
        self._writer = writer
        self._segment: SegmentWriter | None = None
        # Where the last unit ended: the next one has to go on from there.
        self._reached = chain.end
        self._changed = threading.Condition()
        self._queue: deque[tuple[Work, int]] = deque()
        self._queued_bytes = 0
        # Until the first look is over: whoever asks before the thread has begun must not take it for idle.
        self._busy = watch is not None
        self._closing = False
        self._flushed: deque[Flushed] = deque()
        self._ending = 0
        self._failure: BaseException | None = None
        # Of the large transaction that is decoded: bytes done, bytes in all. Set by the worker alone.
        self._large: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._run, name="lakeproof-flush")
        self._thread.start()

    @property
    def uncollected(self) -> list[Flushed]:
        """After `close`: what was made durable, and nobody had taken."""
        return list(self._flushed)

    @property
    def ending(self) -> int:
        """How many segments' ends were submitted whose results nobody has taken yet."""
        with self._changed:
            return self._ending

    @property
    def decoding(self) -> tuple[int, int] | None:
        """How many bytes of the large transaction at work are decoded, and of how many; None if there is none."""
        return self._large

    @property
    def idle(self) -> bool:
        """Whether all that was submitted has been done without an error, and its results taken."""
        with self._changed:
            return not (self._queue or self._busy or self._flushed or self._failure)

    def submit(self, work: Work, timeout_s: float) -> bool:
        """Hand over; False where the queue stayed full for `timeout_s` seconds. Raises what the worker failed with."""
        size = work.size if isinstance(work, Unit) else work.memory_bytes if isinstance(work, LargeTransaction) else 0
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
        """The first result that is not `collected`; waits up to `timeout_s` seconds. Raises what the worker failed with."""
        with self._changed:
            self._changed.wait_for(lambda: self._flushed or self._failure is not None, timeout_s)
            if not self._flushed:
                self._raise_failure()
            return self._flushed[0] if self._flushed else None

    def collected(self) -> None:
        """The first result has been dealt with."""
        with self._changed:
            self._flushed.popleft()
            self._ending -= 1

    def wait(self) -> None:
        """Wait until all that was submitted is done, or has failed; results stay where they are."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not (self._queue or self._busy))

    def look(self) -> None:
        """Look at the catalog once more and wait for it; nothing else may be submitted meanwhile. Raises as `first`."""
        self.submit(Look(last=True), _LOOK_WAIT_S)
        deadline = time.monotonic() + _LOOK_WAIT_S
        while not self.idle and time.monotonic() < deadline:
            self.first(_LOOK_STEP_S)

    def close(self) -> BaseException | None:
        """End the thread after what it is doing now, drop what waits, and give what it failed with, if it did.

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
        if self._segment is not None:
            self._segment.abandon()
        return self._failure

    def _has_room(self, size: int) -> bool:
        return self._failure is not None or not self._queued_bytes or self._queued_bytes + size <= self._queue_bytes_max

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _next(self) -> tuple[Work, int] | None:
        """What to do now, and its size: a look at the catalog where one is due, else what came first; None at the end.

        The lock is held by the caller.
        """
        while not self._closing:
            look_in_s = self._look_in_s()
            if look_in_s == 0:
                found: tuple[Work, int] = (Look(), 0)
            elif self._queue:
                found = self._queue.popleft()
            else:
                self._changed.wait(look_in_s)
                continue
            self._busy = True
            return found
        return None

    def _look_in_s(self) -> float | None:
        """When the catalog is to be looked at; None where nobody asked for it, or a segment is open."""
        if self._watch is None or self._segment is not None:
            return None
        return 0 if self._watch.due else self._watch.wait_s

    def _run(self) -> None:
        # While the first messages come in: the loops are loaded in 0.7 s, or compiled in 5 s the first time on a machine.
        try:
            warm_up()
        except BaseException as error:  # noqa: BLE001  as below
            with self._changed:
                self._failure = _translate(error, self._chain)
                self._changed.notify_all()
            return
        while True:
            with self._changed:
                found = self._next()
                if found is None:
                    return
                work, size = found
            failure: BaseException | None = None
            flushed: Flushed | None = None
            try:
                flushed = self._do(work)
            except BaseException as error:  # noqa: BLE001  raised again in the thread that owns the connection
                failure = _translate(error, self._chain)
            with self._changed:
                self._busy = False
                self._queued_bytes -= size
                self._failure = failure
                if flushed is not None:
                    self._flushed.append(flushed)
                elif isinstance(work, EndSegment):
                    self._ending -= 1
                self._changed.notify_all()
            if failure is not None:
                return

    def _do(self, work: Work) -> Flushed | None:
        if isinstance(work, EndSegment):
            return self._end()
        if isinstance(work, Look):
            if self._watch is not None and self._segment is None:
                self._watch.look(last=work.last)
            return None
        self._check_continues(work)
        if self._segment is None:
            self._segment = SegmentWriter(self._chain, self._writer, self._segment_limits)
        if isinstance(work, Unit):
            self._decode(work, self._segment)
        else:
            self._decode_large(work, self._segment)
        self._reached = work.end_lsn
        return None

    def _check_continues(self, unit: Unit | LargeTransaction) -> None:
        """Invariant no-gap, inside a segment too."""
        if unit.start_lsn != self._reached or unit.end_lsn <= unit.start_lsn:
            raise InvariantError(
                f"landing {self._chain.paths.url(self._chain.paths.landing(self._chain.incarnation))}",
                f"after {self._reached} came what lies between {unit.start_lsn} and {unit.end_lsn}",
                "nothing of it was landed or acknowledged; report this",
            )

    def _decode(self, work: Unit, segment: SegmentWriter) -> None:
        if work.wires:
            batch = self._decoder.decode(*work.wires)
            work.wires.clear()
            failpoint("drain.decoded")
            self._add(batch, segment)

    def _add(self, batch: Batch, segment: SegmentWriter) -> None:
        if batch.notes:
            # The server knows all messages or none.
            kept = [n for n in batch.notes if isinstance(n.said, Origin) or n.said.prefix in self._prefixes]
            batch = replace(batch, notes=kept)
        segment.add(batch)
        if self._watch is not None:
            for schema in batch.schemas:
                self._watch.saw(schema.version)

    def _decode_large(self, work: LargeTransaction, segment: SegmentWriter) -> None:
        """In parts, so that memory does not grow with the transaction; it is one in the manifest's count all the same."""
        info = TransactionInfo(work.end_lsn, work.xid, work.commit_time_us)
        seq = done = 0
        counted = False
        self._large = 0, work.size
        # A streamed transaction's rows have the shapes that it announces itself.
        ordinary = self._decoder.relations
        relations = ordinary.streamed() if work.streamed else ordinary
        decoder = BatchDecoder(relations) if work.streamed else self._decoder
        try:
            for part in work.parts():
                relations.arrival = part.arrival
                size = part.wire.size
                batch = decoder.decode_part(part.wire, info, seq)
                del part
                failpoint("drain.decoded")
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

    def _end(self) -> Flushed | None:
        if self._segment is None:
            return None
        begun = time.monotonic()
        manifest = self._segment.finish(self._reached, None if self._watch is None else self._watch.catalog_lsn)
        self._segment = None
        failpoint("drain.after_manifest")
        return Flushed(manifest, time.monotonic() - begun)


def _translate(error: BaseException, chain: Chain) -> BaseException:
    """The error in the project's own kinds; what is none of the kinds known here stays as it is."""
    landing = chain.paths.url(chain.paths.landing(chain.incarnation))
    if isinstance(error, LakeproofError):
        return error
    translated: LakeproofError
    if isinstance(error, ProtocolError):
        translated = SourceError(
            "replication stream", str(error), "nothing was acknowledged; report this message's form"
        )
    elif isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
        translated = disk_error(f"landing {landing}", "writing to it", error)
    elif isinstance(error, pa.ArrowException):
        translated = InvariantError(
            f"landing {landing}", f"its rows can't be written ({type(error).__name__})", "report this"
        )
    else:
        return error
    translated.__cause__ = error
    return translated
