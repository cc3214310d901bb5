"""Bytes past libpq, from the socket of a connection in the clear.

The messages that the bytes make up do not belong here (`channel.py`).
"""

from __future__ import annotations

import os
from typing import final

import psycopg

from lakeproof.pgoutput.message_buffer import Octets


@final
class SocketTransport:
    """A socket that does not block, without encryption; raises psycopg.OperationalError if it is broken."""

    def __init__(self, socket: int) -> None:
        self._socket = socket

    def read(self, octets: Octets) -> int:
        """Fill `octets` with what has come, and return how many bytes that is; 0 if none has."""
        try:
            count = os.readv(self._socket, [octets.data])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise _not_received(error) from None
        if count == 0:
            raise _closed()
        return count

    def write(self, octets: bytes) -> int:
        """Send what can be sent now, and return how many bytes that is; what is left comes first the next time."""
        try:
            return os.write(self._socket, octets)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise _not_sent(error) from None


def _closed() -> psycopg.Error:
    return psycopg.OperationalError("server closed the connection unexpectedly")


def _not_received(reason: object) -> psycopg.Error:
    return psycopg.OperationalError(f"could not receive data from server: {reason}")


def _not_sent(reason: object) -> psycopg.Error:
    return psycopg.OperationalError(f"could not send data to server: {reason}")
