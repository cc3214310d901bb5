"""Bytes past libpq: from the socket of a connection in the clear, or out of libpq's own TLS session.

The messages that the bytes make up do not belong here (`connection_channel.py`), nor does anything of TLS but reading and
writing: libpq has made the session and checked the server's certificate.

A walsender makes one TLS record per message, so records are read by one compiled loop, and OpenSSL takes several at once
from the socket. OpenSSL is that which libpq is linked with: its functions are looked up through psycopg's own library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Protocol, final

import psycopg
from psycopg.pq.abc import PGconn

from lakeproof.pgoutput.message_buffer import Octets

_WANT_READ, _WANT_WRITE, _SYSCALL, _CLOSED = 2, 3, 5, 6
_WANTS = frozenset({_WANT_READ, _WANT_WRITE})
_FUNCTIONS = (
    "PQsslStruct", "SSL_read", "SSL_write", "SSL_get_error", "SSL_set_read_ahead",
    "ERR_clear_error", "ERR_peek_error", "ERR_error_string_n",
)  # fmt: skip


class Transport(Protocol):
    """The bytes of a connection that does not block; raises psycopg.OperationalError if it is broken."""

    def read(self, octets: Octets) -> int:
        """Fill `octets` with what has come, and return how many bytes that is; 0 if none has."""

    def write(self, octets: bytes) -> int:
        """Send what can be sent now, and return how many bytes that is; what is left comes first the next time."""


@final
class SocketTransport:
    """A socket without encryption."""

    def __init__(self, socket: int) -> None:
        self._socket = socket

    def read(self, octets: Octets) -> int:
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
        try:
            return os.write(self._socket, octets)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise _not_sent(error) from None


@final
class TlsTransport:
    """The TLS session of an idle connection of libpq's, which must not use it meanwhile."""

    def __init__(self, openssl: ctypes.CDLL, session: int) -> None:
        # Imported here, since it imports the compiler: only a process that copies should pay for that.
        from lakeproof.postgres.connection_records import compiled_read, read_records

        self._openssl, self._session = openssl, ctypes.c_void_p(session)
        self._read_records = read_records
        self._read, self._address = compiled_read(openssl), session
        openssl.SSL_set_read_ahead(self._session, 1)

    def read(self, octets: Octets) -> int:
        self._openssl.ERR_clear_error()
        count, last = self._read_records(self._read, self._address, octets.ctypes.data, len(octets))
        # What came before an error is handed on first: the next call meets the error again.
        if last > 0 or count or self._wants(last):
            return count
        raise self._error(last, _not_received)

    def write(self, octets: bytes) -> int:
        if not octets:
            return 0
        self._openssl.ERR_clear_error()
        sent = self._openssl.SSL_write(self._session, octets, len(octets))
        if sent > 0:
            return int(sent)
        if self._wants(sent):
            return 0
        raise self._error(sent, _not_sent)

    def _wants(self, answer: int) -> bool:
        """True if OpenSSL waits for the socket."""
        return self._openssl.SSL_get_error(self._session, answer) in _WANTS

    def _error(self, answer: int, error: Callable[[object], psycopg.Error]) -> psycopg.Error:
        code = self._openssl.SSL_get_error(self._session, answer)
        reason = ctypes.create_string_buffer(256)
        number = self._openssl.ERR_peek_error()
        if code == _CLOSED or (code == _SYSCALL and number == 0):
            return _closed()
        self._openssl.ERR_error_string_n(number, reason, len(reason))
        return error(f"TLS: {reason.value.decode('ascii', 'replace')}")


def open_transport(pgconn: PGconn) -> Transport | None:
    """Return the road past libpq; None if libpq alone can read the connection's bytes.

    That is so if they are not encrypted with OpenSSL, or psycopg is not a library that is linked with libpq. Bytes encrypted
    by GSS are not known here.
    """
    if not pgconn.ssl_in_use:
        return SocketTransport(pgconn.socket)
    file = getattr(sys.modules[type(pgconn).__module__], "__file__", None) or ""
    try:
        library = ctypes.CDLL(file)
        session_of, *_ = (getattr(library, name) for name in _FUNCTIONS)
    except (OSError, AttributeError):
        return None
    session_of.restype = ctypes.c_void_p
    session_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.SSL_write.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.SSL_get_error.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_set_read_ahead.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.ERR_peek_error.restype = ctypes.c_ulong
    library.ERR_error_string_n.argtypes = [ctypes.c_ulong, ctypes.c_char_p, ctypes.c_size_t]
    session = session_of(getattr(pgconn, "pgconn_ptr", None), b"OpenSSL")
    return TlsTransport(library, session) if session else None


def _closed() -> psycopg.Error:
    return psycopg.OperationalError("server closed the connection unexpectedly")


def _not_received(reason: object) -> psycopg.Error:
    return psycopg.OperationalError(f"could not receive data from server: {reason}")


def _not_sent(reason: object) -> psycopg.Error:
    return psycopg.OperationalError(f"could not send data to server: {reason}")
