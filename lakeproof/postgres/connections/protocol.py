"""The interface of a COPY's channel, and the two kinds of COPY: a replication stream, and the rows of a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from psycopg.pq import ExecStatus

from lakeproof.pgoutput.decoder import HEADER_BYTES
from lakeproof.pgoutput.message_buffer import MessageBuffer

# The usual limit of the bytes received before they have to be taken; a larger message gets a buffer of its size.
ROOM_BYTES = 1 << 20


# A fetch of fewer bytes has usually emptied the socket; libpq reads at most 16 kB.
LARGE_FETCH_BYTES = 12_000


@dataclass(frozen=True, slots=True)
class CopyProtocol:
    """A kind of COPY: the server's first answer, and how a data message begins (`tag`, in `header` bytes)."""

    response: bytes
    status: ExecStatus
    tag: int
    header: int
    last: bytes


# The server ends a stream with CommandComplete and closes; after rows it is ready for the next statement.
STREAM = CopyProtocol(b"W", ExecStatus.COPY_BOTH, ord("w"), HEADER_BYTES, b"cCZ")


ROWS = CopyProtocol(b"H", ExecStatus.COPY_OUT, -1, 0, b"Z")


class Channel(Protocol):
    """One COPY.

    `controls` are the CopyData messages that are no data; the caller takes them out. `ended`: the server has ended the COPY
    without an error.
    """

    controls: list[bytes]
    ended: bool

    @property
    def idle(self) -> bool:
        """True if the server is ready for the next statement: nothing was begun, or everything was received."""
        ...

    @property
    def size(self) -> int:
        """Bytes of complete messages received and not taken yet."""
        ...

    @property
    def full(self) -> bool:
        """True if the received messages have to be taken before more can be fetched."""
        ...

    @property
    def unsent(self) -> bool:
        """True if something waits to be sent; `fetch` sends it."""
        ...

    def start(self, query: bytes, give_up: Callable[[], bool] | None = None) -> None:
        """Send the statement and wait for COPY to begin.

        Raises psycopg.Error if the server refuses (the connection stays usable), InterruptedError if `give_up()` turns
        true.
        """
        ...

    def fetch(self) -> int:
        """Receive what has come, without waiting, and return its bytes.

        Raises psycopg.Error if the COPY ends with an error, SourceError for a message that is not PostgreSQL's.
        """
        ...

    def take(self) -> MessageBuffer:
        """Return the messages received since the last call."""
        ...

    def send(self, message: bytes) -> None:
        """Send one CopyData message, as far as there is room now."""
        ...
