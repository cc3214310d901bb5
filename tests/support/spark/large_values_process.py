"""Copied, changed and proved with Spark's driver of a given memory.

    python -m tests.support.spark.large_values_process JSON

A process of its own, since a session takes its memory when it starts. It prints what each table's proof says, and in the end
what comes of a compaction whose driver is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Literal

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.config.section.spark import SparkConfig
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.driver import DriverLostError, stop_session
from lakeproof.lake.spark.session import build_session
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.spark.spark_steps import into_the_lake

# A text that does not compress, of so many MB, each time another.
_TEXT = SQL("(SELECT string_agg(md5((g + {salt})::text), '') FROM generate_series(1, {mb} * 32768) g)")


def main(given: dict[str, Any]) -> None:
    """Run all three cases in one source, so in one driver."""
    config = make_config(given["dsn"], Path(given["lake"]), given["slot"])
    with psycopg.connect(given["dsn"], autocommit=True) as conn:
        _fill(conn, given)
    bootstrap(config, SOURCE, None, silent, Stop())
    session = build_session(SparkConfig(master="local[2]", driver_memory=given["memory"]), "large values")
    into_the_lake(config, session)
    with psycopg.connect(given["dsn"]) as conn:
        _change(conn, given)
    into_the_lake(config, session)
    proofs = prove(config, SOURCE, None, session).tables
    message = {table.name: [proof.status, proof.reason] for table, proof in proofs.items()}
    jvm: Any = session._jvm
    os.kill(int(jvm.java.lang.ProcessHandle.current().pid()), signal.SIGKILL)
    message["killed"] = [_lost(config, session)]
    stop_session(session)
    sys.stdout.write(json.dumps(message))


def _fill(conn: psycopg.Connection[Any], given: dict[str, Any]) -> None:
    for table in ("value", "documents", "counter"):
        conn.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, n int, doc text)").format(SQL(table)))
        # Out of line and as it is: an update of another column leaves it out.
        conn.execute(SQL("ALTER TABLE {} ALTER doc SET STORAGE EXTERNAL").format(SQL(table)))
    conn.execute(SQL("INSERT INTO value VALUES (1, 0, {})").format(_text(given["value_mb"])))
    conn.execute(SQL("INSERT INTO counter VALUES (1, 0, {})").format(_text(given["unchanged_mb"])))
    copies = SQL(
        "INSERT INTO documents SELECT g, 0, g::text || doc FROM (SELECT {} AS doc) d, generate_series(1, {}) g"
    )
    conn.execute(copies.format(_text(given["document_mb"]), Literal(given["documents"])))


def _change(conn: psycopg.Connection[Any], given: dict[str, Any]) -> None:
    for salt in range(1, 4):
        conn.execute(SQL("UPDATE value SET n = n + 1, doc = {}").format(_text(given["value_mb"], salt)))
    for _ in range(given["updates"]):
        conn.execute("UPDATE counter SET n = n + 1")
    conn.execute("UPDATE documents SET n = 1 WHERE id % 3 = 0")


def _text(mb: int, salt: int = 0) -> Any:
    return _TEXT.format(mb=Literal(mb), salt=Literal(salt))


def _lost(config: Config, session: Any) -> str:
    try:
        compact(config, SOURCE, session, silent, Stop())
    except DriverLostError as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
