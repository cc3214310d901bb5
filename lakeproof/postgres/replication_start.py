"""The start of a replication stream: its options, the protocol version, and the checks before it.

The stream itself does not belong here (`replication_stream.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.sql import SQL

from lakeproof.errors import RECOVER, GapError, SourceError
from lakeproof.postgres.connections.connect import (
    Connection,
    rows,
)
from lakeproof.postgres.replication_slot import read_slot, slot_problem


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream.

    With `streaming`, large transactions come while they are open; else the server keeps them until they commit. With
    `messages`, logical messages come too. A slot in use is tried again for `wait_s` seconds.
    """

    status_interval_s: float = 10.0
    silence_timeout_s: float = 300.0
    application_name: str = "lakeproof drain"
    wait_s: float = 0.0
    streaming: bool = True
    messages: bool = False


def newest_protocol(server_version: int) -> int:
    """Return the server's highest version; two-phase (3) and parallel streaming (4), which it allows, are not asked for."""
    return min(4, max(2, server_version // 10000 - 12))


def check_before_start(conn: Connection, slot: str, publications: Sequence[str]) -> None:
    """Raise GapError if the slot is gone or lost, SourceError if it or a publication can't be used."""
    state = read_slot(conn, slot)
    if state is None:
        raise GapError(f"slot {slot}", "it does not exist", RECOVER)
    problem = slot_problem(state, conn.info.dbname)
    if problem is not None and state.lost:
        raise GapError(problem.thing, problem.reason, problem.remedy)
    if problem is not None:
        raise problem
    lines = rows(conn, SQL("SELECT pubname::text FROM pg_catalog.pg_publication"), about="publications")
    existing = {row["pubname"] for row in lines}
    for name in publications:
        if name not in existing:
            # From PostgreSQL 18 on the server would only warn and leave the changes out.
            raise SourceError(f"publication {name}", "it does not exist", "run `lakeproof apply`")
    if not publications:
        raise SourceError("publications", "there is none to read", "run `lakeproof apply`")
