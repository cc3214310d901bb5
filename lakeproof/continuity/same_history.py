"""Whether what the server has before the landing's end is what has landed: a server restored from files can write past it.

Positions are compared in `gap.py`, timelines in `timeline.py`. Both are blind to this: the server is stopped, its files of
an earlier time are copied back, it is started, and writes on past the landing's end. System, timeline and slot are the same.

    landing      ──────────┬─────────────────────┤ E
    server               A └ - - - - - - - - - - - - - - - ─►    another history from A on
    slot         ────────┤ confirmed ≤ A: its state came back with the files

Whenever there is such an A before E, the slot stands behind E, and the server still has what it would send between them. So
where the slot stands behind (after a kill or a crash, as a rule, or here), that much of the stream is read once and held
against the landing, before the drain begins: only as far back as the newest segment with rows, or to the slot's position.

That is enough. The newest landed commit is sent again only if A lies behind it: on another history a commit that ends at
the same place, of the same xid and microsecond, is not to be had. And if A lies behind it, nothing landed after it, so every
commit with rows that the server has between A and E is one that the landing does not have. So what a manifest says of its
last commit is all that is needed: no landed file is read, and a damaged one stands in nobody's way here.

Not seen: a slot made anew on such a server, at a position that the landing had only passed, without rows. A proof sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lakeproof.errors import RECOVER, GapError, SourceError, TransientError
from lakeproof.events import Stop
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import LandedCommit
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.message_buffer import Wire
from lakeproof.pgoutput.messages import Begin, Commit, StreamAbort, StreamCommit, StreamStart, StreamStop
from lakeproof.postgres.connection_timeouts import ASKED_TO_STOP
from lakeproof.postgres.replication_stream import READ_BYTES, WAIT_S, ReplicationStream

_CONTROLS = frozenset(b"BCSEcA")
_CHANGES = frozenset(b"IUDT")


def check_past(
    source: str,
    chain: Chain,
    confirmed: Lsn | None,
    *,
    confirmed_now: Callable[[], Lsn | None],
    open_stream: Callable[[Lsn], ReplicationStream],
    stop: Stop,
) -> int | None:
    """Compare, where the slot stood at `confirmed`, behind the landing; gives the number of commits that are in both.

    None where there is nothing to compare. `confirmed_now` asks again, while nobody else can move the slot. Raises GapError
    where they differ, TransientError where the connection is lost or `stop` is asked for, and as `open_stream`.
    """
    first = to_look_at(chain, confirmed)
    if first is None:
        return None
    with open_stream(first) as stream:
        # Whoever had the slot may have gone on.
        chain.refresh()
        now = confirmed_now()
        if now is None or now >= chain.end:
            return None
        try:
            return compare_past(source, chain, max(first, now), stream, stop)
        except SourceError:
            # A publication that is younger than this piece of the past: the server can't send it under its name.
            return None


def to_look_at(chain: Chain, confirmed: Lsn | None) -> Lsn | None:
    """From which position the past is to be read again; None where the slot does not stand behind the landing.

    Reads the links from the newest one back to one with rows, or to the slot's position.
    """
    if confirmed is None or confirmed >= chain.end:
        return None
    for number in range(chain.newest.number, max(0, chain.first_number - 1), -1):
        manifest = chain.manifest(number)
        if manifest.end_lsn <= confirmed:
            break
        if manifest.files:
            return max(confirmed, manifest.start_lsn)
    # What was removed can't be compared any more.
    return max(confirmed, chain.kept_from)


def compare_past(name: str, chain: Chain, start: Lsn, stream: ReplicationStream, stop: Stop) -> int:
    """Hold what `stream`, opened at `start`, brings up to the landing's end against it; gives the number of commits.

    Raises GapError for source `name` where they differ, TransientError where the connection is lost or `stop` is asked for.
    """
    landed = [m.last_commit for m in chain.between(start, chain.end) if m.last_commit is not None]
    newest = landed[-1] if landed and landed[-1].end_lsn > start else None
    count, met = 0, newest is None
    for commit in _sent(stream, chain.end, stop):
        if newest is None or (commit.end_lsn >= newest.end_lsn and commit != newest):
            raise _other_past(name, chain, f"the server has transaction {commit.xid}, which ended at {commit.end_lsn}")
        count += 1
        met = met or commit == newest
    if newest is not None and not met:
        raise _other_past(name, chain, f"transaction {newest.xid} landed, which ended at {newest.end_lsn}", has=False)
    return count


def _sent(stream: ReplicationStream, end: Lsn, stop: Stop) -> Iterator[LandedCommit]:
    """The commits with rows that end at or before `end`."""
    transactions = _Transactions()
    while True:
        if stop.requested:
            raise TransientError("replication stream", ASKED_TO_STOP, "start again")
        received = stream.read(READ_BYTES, WAIT_S)
        for index, tag in enumerate(received.wire.tags.tobytes()):
            position, commit = transactions.take(tag, received.wire, index)
            if position is not None and position > end:
                return
            if commit is not None:
                yield commit
        if received.keepalive_lsn is not None and received.keepalive_lsn >= end and not transactions.inside:
            return


@dataclass(slots=True)
class _Transactions:
    """Which transaction a message belongs to, and whether it has rows so far."""

    begin: Begin | None = None
    rows: bool = False
    chunk: Xid | None = None
    # Of each streamed transaction the subtransactions with rows.
    streamed: dict[Xid, set[bytes]] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether something has begun that the stream itself will end."""
        return self.begin is not None or self.chunk is not None

    def take(self, tag: int, wire: Wire, index: int) -> tuple[Lsn | None, LandedCommit | None]:
        """The position of a commit, and the commit where it has rows."""
        if tag in _CHANGES:
            if self.chunk is None:
                self.rows = True
            else:
                self.streamed[self.chunk].add(wire.message(index)[1:5])
        elif tag in _CONTROLS:
            return self._control(wire.message(index))
        return None, None

    def _control(self, message: bytes) -> tuple[Lsn | None, LandedCommit | None]:
        match decode(message):
            case Begin() as begin:
                self.begin, self.rows = begin, False
            case StreamStart(xid=xid):
                self.chunk = xid
                self.streamed.setdefault(xid, set())
            case StreamStop():
                self.chunk = None
            case StreamAbort(xid=xid, subxid=subxid):
                if xid == subxid:
                    self.streamed.pop(xid, None)
                else:
                    self.streamed.get(xid, set()).discard(int(subxid).to_bytes(4, "big"))
            case StreamCommit(xid=xid, end_lsn=end, commit_time_us=time_us):
                return end, LandedCommit(end, xid, time_us) if self.streamed.pop(xid, None) else None
            case Commit(end_lsn=end, commit_time_us=time_us) if self.begin is not None:
                found = LandedCommit(end, self.begin.xid, time_us) if self.rows else None
                self.begin = None
                return end, found
            case _:
                pass
        return None, None


def _other_past(name: str, chain: Chain, what: str, *, has: bool = True) -> GapError:
    other = f"the landing, which ends at {chain.end}, does not have it" if has else "the server has no such transaction"
    reason = f"{what}, and {other}: the server was restored to an earlier time and has written on since"
    return GapError(f"source {name}", reason, RECOVER)
