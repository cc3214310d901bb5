"""Measures a drain's peak memory with large input: transactions, rows, many tables and subtransactions, a backlog.

Speed does not belong here (`bench.ingest.drain`). Each case writes its WAL first, then one process drains it with the
default limits. Its peak resident memory comes from the kernel (VmHWM), and its landed rows are counted.

    python -m bench.ingest.bounds [--case NAME ...] [--rows N] [--backlog-gb N]
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.until import Until
from lakeproof.events import Event
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.server import identify
from lakeproof.storage.source_lake import SourceLake

NAME = "bounds"
ROOT = Path(__file__).resolve().parents[2]
LIMIT_MB = 1000
# So large that the server never streams a transaction and never spills one to disk.
_NO_STREAMING = "16GB"
_CONF = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "fsync": "off",
    "max_locks_per_transaction": "512",
    "autovacuum": "off",
}
_ROWS = "CREATE TABLE IF NOT EXISTS rows (id bigint, amount numeric(12, 2), at timestamptz, note text)"
_INSERT = "INSERT INTO rows SELECT g, g * 1.25, now(), md5(g::text) FROM generate_series(1, %s::bigint) g"


@dataclass(frozen=True)
class Case:
    """One kind of input, and the number of rows that must land."""

    name: str
    write: Callable[[psycopg.Connection[Any]], int]
    work_mem: str = "64MB"


def main() -> int:
    """Run the cases; return 1 if one of them exceeded the limit or landed a wrong number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", nargs="*", help="run only these cases")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--backlog-gb", type=float, default=5.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(json.loads(options.child))
        return 0
    bad = 0
    print(f"{'case':<32}{'rows':>12}{'WAL MB':>9}{'wall s':>9}{'CPU s':>8}{'peak MB':>9}{'spilled MB':>12}", flush=True)
    for case in _cases(options.rows, options.backlog_gb):
        if not options.case or case.name in options.case:
            bad += not _run(case)
    return min(bad, 1)


def _cases(rows: int, backlog_gb: float) -> list[Case]:
    return [
        Case("committed, streamed", lambda c: _one(c, rows, commit=True)),
        Case("committed, not streamed", lambda c: _one(c, rows, commit=True), _NO_STREAMING),
        Case("rolled back, streamed", lambda c: _one(c, rows, commit=False)),
        Case("rolled back, not streamed", lambda c: _one(c, rows, commit=False), _NO_STREAMING),
        Case("two in a row, not streamed", lambda c: _one(c, rows // 10) + _one(c, rows // 10), _NO_STREAMING),
        Case("20 rows of 100 MB, at once", lambda c: _wide(c, 1)),
        Case("20 rows of 100 MB, one by one", lambda c: _wide(c, 20)),
        Case("10,000 tables", _tables),
        Case("10,000 tables, each altered", _altered),
        Case("100,000 subtransactions, streamed", _subtransactions),
        Case("100,000 subtransactions, not", _subtransactions, _NO_STREAMING),
        Case("a row updated 1,000,000 times", _hot),
        Case("1,600 columns", _columns),
        Case("backlog", lambda c: _backlog(c, int(backlog_gb * (1 << 30)))),
    ]


def _one(conn: psycopg.Connection[Any], rows: int, *, commit: bool = True) -> int:
    """Write one transaction."""
    conn.execute(_ROWS)
    conn.commit()
    conn.execute(_INSERT, [rows])
    if commit:
        conn.commit()
        return rows
    conn.rollback()
    return 0


def _wide(conn: psycopg.Connection[Any], transactions: int) -> int:
    conn.execute("CREATE TABLE wide (id int PRIMARY KEY, text text)")
    # Not compressed: each row's 100 MB are in the WAL.
    conn.execute("ALTER TABLE wide ALTER text SET STORAGE EXTERNAL")
    conn.execute(
        "CREATE TEMPORARY TABLE one AS SELECT string_agg(md5(g::text), '') AS text FROM generate_series(1, 3276800) g"
    )
    conn.commit()
    for row in range(20):
        conn.execute("INSERT INTO wide SELECT %s, text FROM one", [row])
        if transactions > 1:
            conn.commit()
    conn.commit()
    return 20


def _tables(conn: psycopg.Connection[Any]) -> int:
    for first in range(0, 10_000, 500):
        conn.execute("SELECT set_config('bounds.first', %s, false)", [str(first)])
        conn.execute(
            "DO $$ DECLARE first int := current_setting('bounds.first'); BEGIN FOR i IN first..first + 499 LOOP EXECUTE"
            " format('CREATE TABLE t%s (id int PRIMARY KEY, a text, b text, c int, d date)', i); END LOOP; END $$"
        )
        conn.commit()
    for number in range(3):
        conn.execute("SELECT set_config('bounds.row', %s, false)", [str(number)])
        conn.execute(
            "DO $$ BEGIN FOR i IN 0..9999 LOOP EXECUTE format("
            "'INSERT INTO t%s VALUES (current_setting(''bounds.row'')::int, ''a'', ''b'', 1, now())', i); END LOOP; END $$"
        )
        conn.commit()
    return 30_000


def _altered(conn: psycopg.Connection[Any]) -> int:
    """Add a column to every table between its rows, each in its own transaction."""
    rows = _tables(conn)
    conn.autocommit = True
    conn.execute("""
        CREATE PROCEDURE alter_all() LANGUAGE plpgsql AS $$
        BEGIN
            FOR i IN 0..9999 LOOP
                EXECUTE format('ALTER TABLE t%s ADD COLUMN e int', i);
                EXECUTE format('INSERT INTO t%s VALUES (9, ''a'', ''b'', 1, now(), 2)', i);
                COMMIT;
            END LOOP;
        END $$""")
    conn.execute("CALL alter_all()")
    conn.autocommit = False
    return rows + 10_000


def _hot(conn: psycopg.Connection[Any]) -> int:
    """Update one row a million times, a hundred times in each transaction."""
    conn.execute("CREATE TABLE hot (id int PRIMARY KEY, count int, note text)")
    conn.execute("INSERT INTO hot VALUES (1, 0, repeat('n', 100))")
    conn.commit()
    conn.autocommit = True
    conn.execute("""
        CREATE PROCEDURE heat() LANGUAGE plpgsql AS $$
        BEGIN
            FOR i IN 1..1000000 LOOP
                UPDATE hot SET count = i WHERE id = 1;
                IF i % 100 = 0 THEN COMMIT; END IF;
            END LOOP;
        END $$""")
    conn.execute("CALL heat()")
    conn.autocommit = False
    return 1_000_001


def _columns(conn: psycopg.Connection[Any]) -> int:
    """Write a table with as many columns as allowed: 10,000 rows, each updated once, in 20 transactions."""
    names = [f"c{number}" for number in range(1_599)]
    columns = ", ".join(f"{name} int" for name in names)
    conn.execute(f"CREATE TABLE many (id int PRIMARY KEY, {columns})".encode())
    values = ", ".join("g" for _ in names)
    for first in range(0, 10_000, 1_000):
        conn.execute(f"INSERT INTO many SELECT g, {values} FROM generate_series({first}, {first + 999}) g".encode())  # noqa: S608  numbers
        conn.commit()
    for first in range(0, 10_000, 1_000):
        conn.execute(f"UPDATE many SET c0 = -1 WHERE id BETWEEN {first} AND {first + 999}".encode())  # noqa: S608  numbers
        conn.commit()
    return 20_000


def _subtransactions(conn: psycopg.Connection[Any]) -> int:
    conn.execute(_ROWS)
    conn.execute("""
        CREATE PROCEDURE nested(count int) LANGUAGE plpgsql AS $$
        BEGIN
            FOR i IN 1..count LOOP
                BEGIN
                    INSERT INTO rows SELECT i, g, now(), repeat('x', 100) FROM generate_series(1, 10) g;
                    IF i % 2 = 0 THEN RAISE EXCEPTION 'back'; END IF;
                EXCEPTION WHEN raise_exception THEN NULL;
                END;
            END LOOP;
        END $$""")
    conn.commit()
    conn.execute("CALL nested(100000)")
    conn.commit()
    return 500_000


def _backlog(conn: psycopg.Connection[Any], size: int) -> int:
    conn.execute(_ROWS)
    conn.commit()
    start = _position(conn)
    rows = 0
    while _position(conn) - start < size:
        for _ in range(20):
            conn.execute(_INSERT, [50_000])
            conn.commit()
            rows += 50_000
        conn.execute("TRUNCATE rows")
        conn.commit()
        rows += 1
    return rows


def _run(case: Case) -> bool:
    with (
        EmbeddedPostgres(conf={**_CONF, "logical_decoding_work_mem": case.work_mem}) as server,
        tempfile.TemporaryDirectory(prefix="lakeproof-bounds-") as lake,
    ):
        with psycopg.connect(server.dsn()) as conn:
            conn.execute("CREATE PUBLICATION bounds FOR ALL TABLES")
            conn.commit()
            conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [NAME])
            row = conn.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots").fetchone()
            conn.commit()
            start = Lsn.parse(row[0] if row else "0/0")
            rows = case.write(conn)
            conn.execute("SELECT pg_logical_emit_message(true, 'end', '')")
            conn.commit()
            end = _position(conn)
        given = {"dsn": server.dsn(), "lake": lake, "start": str(start), "end": str(end)}
        command = [sys.executable, "-m", "bench.ingest.bounds", "--child", json.dumps(given)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{case.name:<32} failed with status {done.returncode}", flush=True)
        return False
    result = json.loads(done.stdout)
    good = result["rows"] == rows and result["peak_mb"] <= LIMIT_MB
    print(
        f"{case.name:<32}{result['rows']:>12,}{(end - start) / 1e6:>9,.0f}{result['wall_s']:>9.1f}{result['cpu_s']:>8.1f}"
        f"{result['peak_mb']:>9.0f}{result['spilled_mb']:>12.0f}{'' if good else f'   {rows} rows, {LIMIT_MB} MB expected'}",
        flush=True,
    )
    return bool(good)


def _child(given: dict[str, Any]) -> None:
    """Drain once in this process."""
    source = SourceConfig(name=NAME, dsn=SecretStr(given["dsn"]), publication=NAME, slot=NAME)
    config = Config(path=Path(given["lake"]) / "lakeproof.yaml", lake=given["lake"], sources={NAME: source})
    with connect(source.dsn) as conn:
        server = identify(conn)
    head = ChainSource(
        server.system_id, server.timeline, server.database, server.database_oid, source.slot, NAME, server.version
    )
    lake = SourceLake.open(config.location, NAME)
    start = Lsn.parse(given["start"])
    Chain.create(lake, Incarnation(1), NewHead(start, head, secrets.token_hex(16)))
    spilled = 0

    def report_event(event: Event) -> None:
        nonlocal spilled
        spilled += int(str(event.fields.get("spilled_bytes", 0)))

    started = time.monotonic()
    report = drain(config, NAME, Until.lsn(Lsn.parse(given["end"])), report_event)
    print(
        json.dumps(
            {
                "wall_s": time.monotonic() - started,
                "cpu_s": time.process_time(),
                "rows": report.rows,
                "peak_mb": _peak_mb(),
                "spilled_mb": spilled / 1e6,
            }
        )
    )


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024


def _position(conn: psycopg.Connection[Any]) -> Lsn:
    row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    return Lsn.parse(row[0] if row else "0/0")


if __name__ == "__main__":
    sys.exit(main())
