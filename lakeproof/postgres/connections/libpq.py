"""The libpq conversation below psycopg's cursors: sending a query, waiting for the socket, reading COPY data.

Nothing here blocks inside libpq: its blocking calls hold the interpreter's lock, so no other thread would run meanwhile.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import NoReturn

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

# The longest wait before the clock and the stop flag are checked again.
_SLICE_S = 0.5
_END_TIMEOUT_S = 10.0
# Kind and length precede each message; PostgreSQL sends no longer ones.
ENVELOPE_BYTES = 5
MESSAGE_BYTES_MAX = 1 << 30


def wait_readable(socket: int, timeout_s: float, *, unsent: bool = False) -> bool:
    """Wait until the socket can be read (or, with `unsent`, written); True if it can."""
    events = select.POLLIN | (select.POLLOUT if unsent else 0)
    poll = select.poll()
    poll.register(socket, events)
    return bool(poll.poll(max(0.0, timeout_s) * 1000.0))


def start_copy(pgconn: PGconn, query: bytes, expected: ExecStatus, give_up: Callable[[], bool] | None = None) -> None:
    """Send `query` and wait until the server begins to copy.

    Raises psycopg.Error if it refuses, InterruptedError if `give_up()` turns true.
    """
    pgconn.nonblocking = 1
    pgconn.send_query(query)
    while pgconn.flush():
        wait_readable(pgconn.socket, _SLICE_S, unsent=True)
        pgconn.consume_input()
    while pgconn.is_busy():
        if give_up is not None and give_up():
            raise InterruptedError("asked to stop")
        wait_readable(pgconn.socket, _SLICE_S)
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is None or result.status != expected:
        # The connection stays usable after a refusal, once its remaining results are read.
        end_of_copy(pgconn, refused=True)
        raise_result(pgconn, result)


def end_of_copy(pgconn: PGconn, *, refused: bool = False) -> None:
    """Read the results after the last COPY data until the connection is idle again.

    Raises the psycopg.Error of a failed result, unless `refused`: the caller has the error then.
    """
    failed: PGresult | None = None
    deadline = time.monotonic() + _END_TIMEOUT_S
    while True:
        while pgconn.is_busy():
            if time.monotonic() > deadline:
                raise psycopg.OperationalError("timeout expired after the end of COPY")
            wait_readable(pgconn.socket, _SLICE_S)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None or result.status == ExecStatus.COPY_BOTH:
            break
        if result.status == ExecStatus.FATAL_ERROR:
            failed = failed or result
    if failed is not None and not refused:
        raise_result(pgconn, failed)


def raise_result(pgconn: PGconn, result: PGresult | None) -> NoReturn:
    """Raise `result` as a psycopg.Error; OperationalError if the connection has no error to give."""
    if result is not None and result.status == ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result, encoding="utf-8")
    raise psycopg.OperationalError(pgconn.get_error_message("utf-8") or "the server gave an unexpected answer")
