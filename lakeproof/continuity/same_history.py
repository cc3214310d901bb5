"""Compares the server's history with the landing: a server restored from files can write past the landing's end.

Positions and timelines are not compared here (`gap.py`, `timeline.py`). Both are blind to this case: the server is stopped,
its files of an earlier time are copied back, it is started, and it writes on past the landing's end. System, timeline and
slot are the same.

    landing      ──────────┬─────────────────────┤ E
    server               A └ - - - - - - - - - - - - - - - ─►    another history from A on
    slot         ────────┤ confirmed ≤ A: its state came back with the files

Whenever there is such an A before E, the slot's position is before E, and the server still has what it would send between
the two. So if the slot's position is before E (usually after a kill or a crash, or else in this case), that piece of the
stream is read once and compared with the landing before the drain begins: only from the newest segment with rows on, or
from the slot's position if that is later.

That is enough. The server can repeat the newest landed commit only if the histories diverge **after** it: a different
history has no commit with the same end, xid and microsecond. And if they diverge after it, nothing landed after it, so every
commit with rows that the server has between A and E is missing in the landing. So the manifest's record of its last commit
is all that is needed: no landed file is read, and a damaged one does no harm here.

A landing that was read with other publications has other commits with rows. So the stream is opened with those that the
chain's records name, from where it was read with these on. If one of them is gone or younger, the server can't send the same
any more, and what it sends of each of the rest is compared: a commit too many is another history all the same, and so is the
newest landed one, if it is missing and all of its segment's tables are in that publication alone.

A difference is noted beside the chain (`lakeproof.landing.stuck`), for whoever can't read the stream: `status` asks no slot.

Not detected: a slot created anew on such a server, at a position that the landing had only passed, without rows. A proof
detects it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import SourceConfig
from lakeproof.continuity.gap import check_no_gap
from lakeproof.errors import DefiniteError, SourceError, TransientError
from lakeproof.events import Stop
from lakeproof.landing.catalog_history import catalog_manifests_around, publications_read, read_fingerprint
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import LandedCommit, Manifest
from lakeproof.landing.stuck import note_stuck
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import Begin, Commit, StreamAbort, StreamCommit, StreamStart, StreamStop
from lakeproof.pgoutput.tags import CHANGES, tags_of
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.connections.connect import Connection
from lakeproof.postgres.connections.timeouts import ASKED_TO_STOP
from lakeproof.postgres.replication_stream import READ_BYTES, WAIT_S, ReplicationStream

_CONTROLS = frozenset(tags_of(Begin, Commit, StreamStart, StreamStop, StreamCommit, StreamAbort))
_CHANGES = frozenset(CHANGES)


def check_meets(conn: Connection, source: SourceConfig, chain: Chain, stop: Stop) -> None:
    """Raise as a drain would before it starts; a slot that is being read has been compared by its reader."""
    pair = check_no_gap(conn, source, chain)
    if pair.slot.active:
        return
    check_same_history(
        chain,
        pair.slot.confirmed_flush_lsn,
        publications_of(conn, source),
        confirmed_now=lambda: check_no_gap(conn, source, chain).slot.confirmed_flush_lsn,
        open_stream=lambda names, start: ReplicationStream.open(source.dsn, source.slot, names, start),
        stop=stop,
    )


def check_same_history(
    chain: Chain,
    confirmed: Lsn | None,
    publications: Sequence[str],
    *,
    confirmed_now: Callable[[], Lsn | None],
    open_stream: Callable[[Sequence[str], Lsn], ReplicationStream],
    stop: Stop,
) -> int | None:
    """Compare the histories if the slot's position, `confirmed`, is before the landing's end; return the number of commits.

    Returns None if there is nothing to compare. `publications` are the source's that exist; `confirmed_now` reads the
    position again, while nobody else can move the slot. Raises GapError if the histories differ, TransientError if the
    connection is lost, a stop is requested or another drain has come between, and as `open_stream`.
    """
    first = compare_from(chain, confirmed)
    if first is None:
        return None
    names, first = publications_read(chain, first)
    if first >= chain.end:
        return None

    def compared(chosen: Sequence[str], first: Lsn) -> int | None:
        with open_stream(chosen, first) as stream:
            # The slot's last reader may have moved it meanwhile.
            chain.refresh()
            now = confirmed_now()
            if now is None or now >= chain.end:
                return None
            read_now, first = publications_read(chain, max(first, now))
            if read_now != names:
                reason = "another drain has read on with others meanwhile"
                raise TransientError(f"publications of {chain.lake.source}", reason, "start again")
            return compare_history(chain, first, stream, stop, without=names.difference(chosen))

    existing = [name for name in publications if name in names]
    if len(existing) == len(names):
        # Of a publication that is younger than this piece of the past the server can't send any of it.
        with suppress(SourceError):
            return compared(existing, first)
    counts = []
    for name in existing if len(names) > 1 else ():
        with suppress(SourceError):
            counts.append(compared([name], first) or 0)
    return max(counts, default=None)


def compare_from(chain: Chain, confirmed: Lsn | None) -> Lsn | None:
    """Return the position from which the past has to be read again; None if the slot is not before the landing's end.

    Reads the manifests from the newest back to one with rows, or to the slot's position.
    """
    if confirmed is None or confirmed >= chain.end:
        return None
    # A drain's chain is open for weeks.
    chain.reread_start()
    for number in range(chain.newest.number, max(0, chain.first_number - 1), -1):
        manifest = chain.manifest(number)
        if manifest.end_lsn <= confirmed:
            break
        if manifest.files:
            return max(confirmed, manifest.start_lsn)
    # Manifests that were removed can't be compared any more.
    return max(confirmed, chain.kept_from)


def compare_history(
    chain: Chain, start: Lsn, stream: ReplicationStream, stop: Stop, without: Collection[str] = ()
) -> int:
    """Compare what `stream`, opened at `start`, brings up to the landing's end with the landing; return the commit count.

    It has no changes of the publications `without`, with which the landing was read: if the newest landed commit may be
    theirs, the stream need not have it. Raises GapError if they differ, TransientError if the connection is lost or a stop
    is requested.
    """
    landed = [m for m in chain.between(start, chain.end) if m.last_commit is not None]
    newest = landed[-1].last_commit if landed else None
    newest = newest if newest is not None and newest.end_lsn > start else None
    count, met = 0, newest is None or (bool(without) and not _is_sent(chain, landed[-1], without))
    for commit in _sent(stream, chain.end, stop):
        if newest is None or (commit.end_lsn >= newest.end_lsn and commit != newest):
            raise _other_history(chain, f"the server has transaction {commit.xid}, which ended at {commit.end_lsn}")
        count += 1
        met = met or commit == newest
    if newest is not None and not met:
        landed_one = f"transaction {newest.xid} landed, which ended at {newest.end_lsn}"
        raise _other_history(chain, landed_one, has=False)
    return count


def _is_sent(chain: Chain, manifest: Manifest, without: Collection[str]) -> bool:
    """True if, by each reading of the catalog around it, no table of its rows is in a publication of `without`."""
    catalogs = [read_fingerprint(chain, m) for m in catalog_manifests_around(chain, manifest.start_lsn)]
    return bool(catalogs) and all(
        _is_apart(file.oid, catalog, without) for catalog in catalogs for file in manifest.files
    )


def _is_apart(oid: Oid, catalog: Fingerprint, without: Collection[str]) -> bool:
    table = catalog.tables.get(oid)
    return table is not None and all(catalog.publications[e.publication].name not in without for e in table.entries)


def _sent(stream: ReplicationStream, end: Lsn, stop: Stop) -> Iterator[LandedCommit]:
    """Yield the commits with rows that end at or before `end`."""
    transactions = _Transactions()
    while True:
        if stop.requested:
            raise TransientError("replication stream", ASKED_TO_STOP, "start again")
        received = stream.read(READ_BYTES, WAIT_S)
        for index, tag in enumerate(received.buffer.tags.tobytes()):
            position, commit = transactions.take(tag, received.buffer, index)
            if position is not None and position > end:
                return
            if commit is not None:
                yield commit
        if received.keepalive_lsn is not None and received.keepalive_lsn >= end and not transactions.inside:
            return


@dataclass(slots=True)
class _Transactions:
    """The transaction that the current message belongs to, and whether it has rows so far."""

    begin: Begin | None = None
    rows: bool = False
    chunk: Xid | None = None
    # The subtransactions with rows of each streamed transaction.
    streamed: dict[Xid, set[bytes]] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """True if a transaction or a chunk is open whose end the stream will bring."""
        return self.begin is not None or self.chunk is not None

    def take(self, tag: int, buffer: MessageBuffer, index: int) -> tuple[Lsn | None, LandedCommit | None]:
        """Return the position of a commit, and the commit itself if it has rows."""
        if tag in _CHANGES:
            if self.chunk is None:
                self.rows = True
            else:
                self.streamed[self.chunk].add(buffer.message(index)[1:5])
        elif tag in _CONTROLS:
            return self._control(buffer.message(index))
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
                landed = LandedCommit(end, self.begin.xid, time_us) if self.rows else None
                self.begin = None
                return end, landed
            case _:
                pass
        return None, None


def _other_history(chain: Chain, what: str, *, has: bool = True) -> DefiniteError:
    other = f"the landing, which ends at {chain.end}, does not have it" if has else "the server has no such transaction"
    reason = f"{what}, and {other}: the server was restored to an earlier time and has written on since"
    slot = "" if chain.head.source is None else chain.head.source.slot
    return note_stuck(chain, slot, reason, other_history=True).error(chain.lake.source)
