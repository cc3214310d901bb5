"""Draining a backlog to durable segments against `pg_recvlogical -f /dev/null`, on copies of one slot, in one run.

Goals and their history belong to docs, not here. One million changes (60 % inserts, 30 % updates, 10 % deletes; 8 mixed
columns; 100 per transaction) are written first; then each program reads them from the same WAL, in turns. The walsender's
CPU is read from /proc while it works.

    python -m bench.drain [--changes N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from wal2delta.config.model import Config, SourceConfig
from wal2delta.drain.until import Until
from wal2delta.landing.chain import Chain
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.manifest import ChainSource
from wal2delta.landing.store import open_store
from wal2delta.lsn import Lsn
from wal2delta.names import Incarnation
from wal2delta.pipeline.drain import drain
from wal2delta.postgres.connection import connect
from wal2delta.postgres.server import identify

NAME = "bench"
ROOT = Path(__file__).resolve().parent.parent
_TABLE = """
CREATE TABLE changes (id bigint PRIMARY KEY, account int, amount numeric(12, 2), rate float8, paid bool,
                      at timestamptz, day date, note text)
"""
# 60 inserts, 30 updates and 10 deletes per transaction; what is updated and deleted was inserted by it.
_LOAD = """
CREATE PROCEDURE load(transactions bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR t IN 0 .. transactions - 1 LOOP
        INSERT INTO changes SELECT t * 60 + g, g % 1000, g * 1.25, g / 3.0, g % 2 = 0, now(), now()::date, md5(g::text)
            FROM generate_series(1, 60) g;
        UPDATE changes SET amount = amount + 1, note = 'updated ' || id WHERE id BETWEEN t * 60 + 1 AND t * 60 + 30;
        DELETE FROM changes WHERE id BETWEEN t * 60 + 51 AND t * 60 + 60;
        COMMIT;
    END LOOP;
END $$
"""


@dataclass(frozen=True)
class Run:
    """One reading of the backlog: seconds of wall clock and CPU, megabytes."""

    wall_s: float
    client_cpu_s: float
    walsender_cpu_s: float
    peak_rss_mb: float


def main() -> None:
    """Load, read in turns, print medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(json.loads(options.child))
        return
    with EmbeddedPostgres(conf={"shared_buffers": "256MB", "max_wal_size": "4GB", "fsync": "off"}) as server:
        end = _load(server, options.changes)
        pairs = []
        for number in range(options.rounds):
            pair = (_recvlogical(server, f"r{number}", end), _ours(server, f"w{number}", end))
            pairs.append(pair)
            print(
                f"round {number + 1}: pg_recvlogical {pair[0].wall_s:.2f} s, wal2delta {pair[1].wall_s:.2f} s",
                flush=True,
            )
        _print(options.changes, pairs)


def _load(server: EmbeddedPostgres, changes: int) -> Lsn:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(_TABLE)
        conn.execute(_LOAD)
        conn.execute("CREATE PUBLICATION bench FOR TABLE changes")
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [NAME])
        begun = time.monotonic()
        conn.execute("CALL load(%s)", [changes // 100])
        row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        conn.execute("CHECKPOINT")
    if row is None:
        raise RuntimeError("the server did not tell its position")
    print(f"{changes} changes written in {time.monotonic() - begun:.1f} s", flush=True)
    return Lsn.parse(row[0])


def _recvlogical(server: EmbeddedPostgres, slot: str, end: Lsn) -> Run:
    _copy_slot(server, slot)
    options = ["proto_version=1", f"publication_names={NAME}"]
    command = [str(server.program("pg_recvlogical")), "-d", server.dsn(), "-S", slot, "--start", "-f", "/dev/null"]
    command += ["--endpos", str(end), "--no-loop", *(part for option in options for part in ("-o", option))]
    begun = time.monotonic()
    run, _ = _measured(server, slot, command)
    return Run(time.monotonic() - begun, *run)


def _ours(server: EmbeddedPostgres, slot: str, end: Lsn) -> Run:
    start = _copy_slot(server, slot)
    with tempfile.TemporaryDirectory(prefix="wal2delta-bench-") as lake:
        given = {"dsn": server.dsn(), "lake": lake, "slot": slot, "start": str(start), "end": str(end)}
        run, out = _measured(server, slot, [sys.executable, "-m", "bench.drain", "--child", json.dumps(given)])
    return Run(json.loads(out)["wall_s"], *run)


def _child(given: dict[str, Any]) -> None:
    """One drain in this process, timed without the interpreter's start."""
    source = SourceConfig(name=NAME, dsn=SecretStr(given["dsn"]), publication=NAME, slot=given["slot"])
    config = Config(path=Path(given["lake"]) / "wal2delta.yaml", lake=given["lake"], sources={NAME: source})
    with connect(source.dsn) as conn:
        server = identify(conn)
    head = ChainSource(server.system_id, server.timeline, server.database, source.slot, NAME, server.version)
    Chain.create(
        open_store(config.lake),
        LakePaths(config.lake, NAME),
        Incarnation(1),
        start=Lsn.parse(given["start"]),
        source=head,
        writer=secrets.token_hex(16),
    )
    begun = time.monotonic()
    report = drain(config, NAME, Until.lsn(Lsn.parse(given["end"])))
    print(json.dumps({"wall_s": time.monotonic() - begun, "rows": report.rows, "segments": report.segments}))


def _copy_slot(server: EmbeddedPostgres, slot: str) -> Lsn:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [NAME, slot])
        row = conn.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
    if row is None:
        raise RuntimeError(f"slot {slot} was not copied")
    return Lsn.parse(row[0])


def _measured(server: EmbeddedPostgres, slot: str, command: list[str]) -> tuple[tuple[float, float, float], str]:
    """Run it; client CPU seconds, walsender CPU seconds, peak RSS in megabytes, and what it printed."""
    ended = threading.Event()
    walsender: list[float] = [0.0]
    watcher = threading.Thread(target=_watch, args=(server.dsn(), slot, ended, walsender))
    watcher.start()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    out = process.stdout.read() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with status {process.returncode}")
    return (usage.ru_utime + usage.ru_stime, walsender[0], _megabytes(usage)), out


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / 1024


def _watch(dsn: str, slot: str, ended: threading.Event, seconds: list[float]) -> None:
    """The CPU time of the process that serves the slot, as long as it does."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not ended.wait(0.05):
            row = conn.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone()
            if row is not None and row[0] is not None:
                with suppress(OSError):
                    fields = Path(f"/proc/{row[0]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                    seconds[0] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _print(changes: int, pairs: list[tuple[Run, Run]]) -> None:
    columns = f"{'wall s':>9}{'changes/s':>12}{'client CPU s':>14}{'walsender CPU s':>17}{'RSS MB':>9}"
    print(f"\n{'median of ' + str(len(pairs)):<16}{columns}")
    for at, name in enumerate(("pg_recvlogical", "wal2delta")):
        runs = [pair[at] for pair in pairs]
        wall, cpu, sender, rss = (
            statistics.median(getattr(run, field) for run in runs)
            for field in ("wall_s", "client_cpu_s", "walsender_cpu_s", "peak_rss_mb")
        )
        print(f"{name:<16}{wall:>9.2f}{changes / wall:>12,.0f}{cpu:>14.2f}{sender:>17.2f}{rss:>9.0f}")
    ratio = statistics.median(theirs.wall_s / ours.wall_s for theirs, ours in pairs)
    print(f"\npg_recvlogical / wal2delta, wall: {ratio:.2f} (above 1: wal2delta is faster)")


if __name__ == "__main__":
    main()
