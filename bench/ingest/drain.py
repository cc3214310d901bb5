"""Times draining a backlog to durable segments, against `pg_recvlogical -f /dev/null` on copies of one slot, in one run.

Goals and their history do not belong here (docs). Each case writes its backlog first; then the programs take turns reading
it from the same WAL, each from its own slot that begins at the same position. The walsender's CPU and the reader's peak
memory are read from /proc while they work. Wall time begins when the program is loaded: it excludes the interpreter's start
and imports, CPU seconds include them.

    python -m bench.ingest.drain [--case mixed ...] [--changes N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import re
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
from psycopg.sql import SQL, Identifier, Literal
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from lakeproof.commands.drain import drain
from lakeproof.config.location import StorageConfig
from lakeproof.config.model import Config, DrainConfig, SourceConfig
from lakeproof.drain.until import Until
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments import row_sums
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.pgoutput.warm_up import warm_up_decoder
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.server import identify
from lakeproof.storage.source_lake import SourceLake

ROOT = Path(__file__).resolve().parents[2]
_COLUMNS = (
    "id bigint PRIMARY KEY, account int, amount numeric(12, 2), rate float8, paid bool, "
    "at timestamptz, day date, note text"
)
_ROW = (
    "g % 1000, g * 1.25, g / 3.0, g % 2 = 0, now() + g * interval '1 s', now()::date + g % 365, md5((t * 60 + g)::text)"
)
# 60 inserts, 30 updates and 10 deletes per transaction, which updates and deletes rows of its own.
_MIXED = f"""
        INSERT INTO {{table}} SELECT t * 60 + g, {_ROW} FROM generate_series(1, 60) g;
        UPDATE {{table}} SET amount = amount + 1, note = 'updated ' || id WHERE id BETWEEN t * 60 + 1 AND t * 60 + 30;
        DELETE FROM {{table}} WHERE id BETWEEN t * 60 + 51 AND t * 60 + 60;
"""
_WIDE_KINDS = (
    "int",
    "bigint",
    "numeric(12, 2)",
    "float8",
    "timestamptz",
    "text",
    "date",
    "bool",
    "uuid",
    "varchar(20)",
)
_WIDE_VALUES = (
    "g % 1000", "t * 100 + g", "g * 1.25", "g / 3.0", "now()", "md5(g::text)", "now()::date", "g % 2 = 0",
    "md5(g::text)::uuid", "'status ' || g % 5",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One backlog: the SQL of transaction number `t`, its number of changes, and the share of `--changes`."""

    columns: str
    statements: str
    per_transaction: int
    share: float
    # Each of which comes as a table of its own.
    partitions: int = 0

    def transactions(self, changes: int) -> int:
        """Return the number of transactions for a backlog of `changes` changes in the mixed case."""
        return max(1, round(changes * self.share / self.per_transaction)) if self.per_transaction else 1


CASES = {
    "mixed": Case(_COLUMNS, _MIXED, 100, 1.0),
    "single": Case(_COLUMNS, f"INSERT INTO {{table}} SELECT t * 60 + g, {_ROW} FROM generate_series(1, 1) g;", 1, 0.25),
    "large": Case(_COLUMNS, f"INSERT INTO {{table}} SELECT g, {_ROW} FROM generate_series(1, {{changes}}) g;", 0, 1.0),
    "wide": Case(
        "id bigint PRIMARY KEY, " + ", ".join(f"c{i} {_WIDE_KINDS[i % 10]}" for i in range(49)),
        "INSERT INTO {table} SELECT t * 100 + g, "
        + ", ".join(_WIDE_VALUES[i % 10] for i in range(49))
        + " FROM generate_series(1, 100) g;",
        100,
        0.1,
    ),
    "text": Case(
        "id bigint PRIMARY KEY, body text",
        "INSERT INTO {table} SELECT t * 100 + g, (SELECT string_agg(md5((t * 3200 + g * 32 + i)::text), '')"
        " FROM generate_series(1, 32) i) FROM generate_series(1, 100) g;",
        100,
        0.1,
    ),
    # EXTERNAL: the server would spend its time on decompressing.
    "values": Case(
        "id bigint PRIMARY KEY, body text STORAGE EXTERNAL",
        "INSERT INTO {table} SELECT t, string_agg(md5((t * 32768 + i)::text), '') FROM generate_series(1, 32768) i;",
        1,
        0.0001,
    ),
    "tables": Case(_COLUMNS, _MIXED, 100, 0.5, partitions=20),
}


@dataclass(frozen=True)
class Backlog:
    """What a slot has to send: changes, megabytes of messages, and the position at which it ends."""

    changes: int
    megabytes: float
    end: Lsn


@dataclass(frozen=True)
class Run:
    """One reading of the backlog: seconds of wall clock and CPU, megabytes."""

    wall_s: float
    client_cpu_s: float
    walsender_cpu_s: float
    peak_rss_mb: float


def main() -> None:
    """Load, read in turns, print medians and ratios, case after case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument(
        "--changes", type=int, default=2_000_000, help="changes of the mixed case; other cases have a share of them"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(json.loads(options.child))
        return
    with EmbeddedPostgres(conf={"shared_buffers": "256MB", "max_wal_size": "4GB", "fsync": "off"}) as server:
        print(f"median of {options.rounds} rounds; ratios are pg_recvlogical / lakeproof, above 1: lakeproof is better")
        heads = (
            ("wall s", 8),
            ("changes/s", 11),
            ("MB/s", 7),
            ("client CPU s", 14),
            ("walsender CPU s", 17),
            ("peak MB", 9),
        )
        print(f"{'case':8}{'changes':>9}  {'reader':16}" + "".join(f"{head:>{width}}" for head, width in heads))
        for name in options.case:
            _run_case(server, name, options.changes, options.rounds)


def _run_case(server: EmbeddedPostgres, name: str, mixed_changes: int, rounds: int) -> None:
    backlog = load(server, name, mixed_changes)
    changes, end = backlog.changes, backlog.end
    pairs = [
        (recvlogical(server, name, f"{name}_r{i}", end), ours(server, name, f"{name}_w{i}", end)) for i in range(rounds)
    ]
    for index, reader in enumerate(("pg_recvlogical", "lakeproof")):
        run = _median([pair[index] for pair in pairs])
        print(
            f"{name:8}{changes:>9}  {reader:16}{run.wall_s:8.2f}"
            f"{changes / run.wall_s:11,.0f}{backlog.megabytes / run.wall_s:7,.0f}"
            f"{run.client_cpu_s:14.2f}{run.walsender_cpu_s:17.2f}{run.peak_rss_mb:9.0f}"
        )
    wall = statistics.median(theirs.wall_s / own.wall_s for theirs, own in pairs)
    sender = statistics.median(own.walsender_cpu_s / theirs.walsender_cpu_s for theirs, own in pairs)
    per_cpu = changes / _median([pair[1] for pair in pairs]).client_cpu_s
    print(
        f"{'':19}wall ratio {wall:.2f}; walsender CPU {sender:.2f} of theirs; {per_cpu:,.0f} changes per client CPU s",
        flush=True,
    )


def _median(runs: list[Run]) -> Run:
    return Run(
        *(
            statistics.median(getattr(run, field) for run in runs)
            for field in ("wall_s", "client_cpu_s", "walsender_cpu_s", "peak_rss_mb")
        )
    )


def load(server: EmbeddedPostgres, name: str, mixed_changes: int) -> Backlog:
    """Create a slot and a publication with the case's name, write its backlog."""
    case = CASES[name]
    transactions = case.transactions(mixed_changes)
    changes = transactions * case.per_transaction or mixed_changes
    statements = case.statements.format(table=name, changes=changes)
    procedure = SQL("CREATE PROCEDURE {name}(transactions bigint) LANGUAGE plpgsql AS {body}").format(
        name=Identifier(f"load_{name}"),
        body=Literal(f"BEGIN FOR t IN 0 .. transactions - 1 LOOP {statements} COMMIT; END LOOP; END"),
    )
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        by_hash = SQL("PARTITION BY HASH (id)" if case.partitions else "")
        conn.execute(SQL("CREATE TABLE {} ({}) {}").format(Identifier(name), SQL(case.columns), by_hash))
        for i in range(case.partitions):
            part = SQL("CREATE TABLE {part} PARTITION OF {name} FOR VALUES WITH (MODULUS {of}, REMAINDER {i})")
            values = {"part": Identifier(f"{name}_{i}"), "name": Identifier(name)}
            conn.execute(part.format(**values, of=Literal(case.partitions), i=Literal(i)))
        conn.execute(procedure)
        conn.execute(SQL("CREATE PUBLICATION {name} FOR TABLE {name}").format(name=Identifier(name)))
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        conn.execute(SQL("CALL {}({})").format(Identifier(f"load_{name}"), Literal(transactions)))
        end = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        size = conn.execute(
            "SELECT sum(length(data)) FROM pg_logical_slot_peek_binary_changes"
            "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)",
            [name, name],
        ).fetchone()
        conn.execute("CHECKPOINT")
    if end is None or size is None:
        raise RuntimeError("the server returned no position")
    return Backlog(changes, float(size[0]) / 1e6, Lsn.parse(end[0]))


def recvlogical(server: EmbeddedPostgres, name: str, slot: str, end: Lsn, program: Path | None = None) -> Run:
    """Read the backlog of a case with `pg_recvlogical`, the server's own or this program, from a copy of its slot."""
    _copy_slot(server, name, slot)
    options = ["proto_version=1", f"publication_names={name}"]
    command = [
        str(program or server.program("pg_recvlogical")),
        "-d",
        server.dsn(),
        "-S",
        slot,
        "--start",
        "-f",
        "/dev/null",
    ]
    command += ["--endpos", str(end), "--no-loop", *(part for option in options for part in ("-o", option))]
    started = time.monotonic()
    run, _ = _measured(server, slot, command)
    return Run(time.monotonic() - started, *run)


def ours(server: EmbeddedPostgres, name: str, slot: str, end: Lsn, settings: dict[str, Any] | None = None) -> Run:
    """Drain the backlog to durable segments, from another copy of the slot.

    `settings`: where to, and how (`lake`, `storage` and `drain` of a configuration), in place of a folder and the defaults.
    """
    start = _copy_slot(server, name, slot)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as lake:
        given = {"dsn": server.dsn(), "lake": lake, "name": name, "slot": slot, "start": str(start), "end": str(end)}
        given |= settings or {}
        run, out = _measured(server, slot, [sys.executable, "-m", "bench.ingest.drain", "--child", json.dumps(given)])
    return Run(json.loads(out)["wall_s"], *run)


def _child(given: dict[str, Any]) -> None:
    """Drain once in this process, timed without the interpreter's start and the loading of compiled code."""
    name = given["name"]
    limits = DrainConfig.model_validate(given.get("drain", {}))
    source = SourceConfig(name=name, dsn=SecretStr(given["dsn"]), publication=name, slot=given["slot"], drain=limits)
    storage = StorageConfig.model_validate(given.get("storage", {}))
    config = Config(path=Path("lakeproof.yaml"), lake=given["lake"], storage=storage, sources={name: source})
    create_chain(config, source, Lsn.parse(given["start"]))
    warm_up_decoder()
    row_sums.warm_up_sums()
    started = time.monotonic()
    report = drain(config, name, Until.lsn(Lsn.parse(given["end"])))
    print(json.dumps({"wall_s": time.monotonic() - started, "rows": report.rows, "segments": report.segments}))


def create_chain(config: Config, source: SourceConfig, start: Lsn) -> None:
    """Create the first manifest of a landing that begins at `start`, without a snapshot."""
    with connect(source.dsn) as conn:
        server = identify(conn)
    head = ChainSource(
        server.system_id,
        server.timeline,
        server.database,
        server.database_oid,
        source.slot,
        source.publication,
        server.version,
    )
    Chain.create(
        SourceLake.open(config.location, source.name),
        Incarnation(1),
        NewHead(start, head, secrets.token_hex(16)),
    )


def _copy_slot(server: EmbeddedPostgres, name: str, slot: str) -> Lsn:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [name, slot])
        row = conn.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
    if row is None:
        raise RuntimeError(f"slot {slot} was not copied")
    return Lsn.parse(row[0])


def _measured(server: EmbeddedPostgres, slot: str, command: list[str]) -> tuple[tuple[float, float, float], str]:
    """Run the command; return client and walsender CPU seconds, peak RSS in megabytes, and its output."""
    ended = threading.Event()
    peaks = [0.0, 0.0]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    watcher = threading.Thread(target=_watch, args=(server.dsn(), slot, process.pid, ended, peaks))
    watcher.start()
    out = process.stdout.read() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with status {process.returncode}")
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    return (usage.ru_utime + usage.ru_stime, peaks[0], peaks[1]), out


def _watch(dsn: str, slot: str, reader: int, ended: threading.Event, peaks: list[float]) -> None:
    """Record the CPU time of the slot's walsender and the reader's peak memory while both exist."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not ended.wait(0.02):
            row = conn.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone()
            with suppress(OSError):
                if row is not None and row[0] is not None:
                    fields = Path(f"/proc/{row[0]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                    peaks[0] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                # Not from wait4: its peak starts with the peak of the parent process.
                peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{reader}/status").read_text(encoding="utf-8"))
                peaks[1] = max(peaks[1], int(peak[1]) / 1024 if peak else 0.0)


if __name__ == "__main__":
    main()
