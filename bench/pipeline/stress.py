"""Measures memory and time of the whole pipeline with large input: values, rows of one key, equal rows, columns, tables.

The drain alone does not belong here (`bench.ingest.bounds`). Copy and drain are processes of their own; the first
compaction, that of the changes and the proof share one process, with the default driver memory. Peaks so far of Python and
of the JVM come from the kernel (VmHWM).

    python -m bench.pipeline.stress [--case NAME ...] [--memory 2g] [--value-mb N] [--scale F]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg.sql import SQL, Composed, Identifier
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.drain.until import Until
from lakeproof.errors import LakeproofError
from lakeproof.events import Stop, silent

NAME = "stress"
ROOT = Path(__file__).resolve().parents[2]
_CONF = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "fsync": "off",
    "max_locks_per_transaction": "512",
    "autovacuum": "off",
}
# A text of this many MB that hardly compresses: a value stored out of line that is not sent again.
_TEXT = SQL("(SELECT string_agg(md5((g + {salt})::text), '') FROM generate_series(1, {mb} * 32768) g)")
_DOCS = "CREATE TABLE docs (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, doc text)"
_EXTERNAL = "ALTER TABLE docs ALTER doc SET STORAGE EXTERNAL"

Conn: TypeAlias = psycopg.Connection[Any]


@dataclass(frozen=True)
class Case:
    """The rows before the first copy, and the changes after it, all for one cycle."""

    name: str
    before: Callable[[Conn], None]
    change: Callable[[Conn], None] | None = None


def main() -> int:
    """Run all cases, even after one has failed; return 1 in that case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", nargs="*", help="run only these cases")
    parser.add_argument("--memory", default="2g", help="spark.driver_memory")
    parser.add_argument("--value-mb", type=int, default=100)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the numbers of rows, tables and updates")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(json.loads(options.child))
        return 0
    cases = [c for c in _cases(options.value_mb, options.scale) if not options.case or c.name in options.case]
    print(f"{'case':<24}{'step':<22}{'wall s':>9}{'Python MB':>11}{'JVM MB':>9}  outcome", flush=True)
    return int(sum(not _run(case, options.memory, options) for case in cases) > 0)


def _cases(value_mb: int, scale: float) -> list[Case]:
    million, thousands = int(1_000_000 * scale), int(10_000 * scale)
    return [
        Case("27 MB", lambda c: _value(c, 27), lambda c: _rewritten(c, 27)),
        Case("150 rows of 5 MB", _documents),
        Case("counter beside 3 MB", lambda c: _value(c, 3), lambda c: _counted(c, 200)),
        Case("one value", lambda c: _value(c, value_mb), lambda c: _rewritten(c, value_mb)),
        Case("hot row", lambda c: _value(c, 0), lambda c: _counted(c, million)),
        Case("equal rows", lambda c: _bag(c, million // 2), lambda c: _equal_rows(c, million // 2)),
        Case("1,600 columns", _wide, _wide_changes),
        Case("10,000 tables", lambda c: _tables(c, thousands), lambda c: _some_tables(c, thousands)),
        Case("subtransactions", _nested, lambda c: _nest(c, int(100_000 * scale))),
    ]


def _text(mb: int, salt: int = 0) -> Composed:
    return _TEXT.format(mb=mb, salt=salt)


def _value(conn: Conn, mb: int) -> None:
    conn.execute(_DOCS)
    conn.execute(_EXTERNAL)
    conn.execute(SQL("INSERT INTO docs VALUES (1, 0, {})").format(_text(mb)))
    conn.execute("INSERT INTO docs SELECT g, 0, 'small' FROM generate_series(2, 100) g")


def _rewritten(conn: Conn, mb: int) -> None:
    for salt in range(1, 4):
        conn.execute(SQL("UPDATE docs SET doc = {}, n = n + 1 WHERE id = 1").format(_text(mb, salt)))
        conn.execute("UPDATE docs SET n = n + 1")


def _documents(conn: Conn) -> None:
    conn.execute(_DOCS)
    conn.execute(_EXTERNAL)
    conn.execute(SQL("CREATE TEMPORARY TABLE one AS SELECT {} AS doc").format(_text(5)))
    conn.execute("INSERT INTO docs SELECT g, 0, g::text || doc FROM one, generate_series(1, 150) g")


def _counted(conn: Conn, times: int) -> None:
    with conn.cursor() as cursor:
        for first in range(0, times, 10_000):
            cursor.executemany("UPDATE docs SET n = n + 1 WHERE id = 1", [()] * min(10_000, times - first))


def _bag(conn: Conn, rows: int) -> None:
    conn.execute("CREATE TABLE bag (a int, b text)")
    conn.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    _equal(conn, rows)


def _equal(conn: Conn, rows: int) -> None:
    conn.execute("INSERT INTO bag SELECT 1, 'equal' FROM generate_series(1, %s::bigint)", [rows])


def _equal_rows(conn: Conn, rows: int) -> None:
    _equal(conn, rows)
    conn.execute("DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag LIMIT %s)", [rows])


def _wide(conn: Conn) -> None:
    names = [Identifier(f"c{i}") for i in range(1, 1600)]
    columns = SQL(", ").join(SQL("{} int").format(name) for name in names)
    conn.execute(SQL("CREATE TABLE wide (id int PRIMARY KEY, {})").format(columns))
    conn.execute("INSERT INTO wide SELECT g FROM generate_series(1, 1000) g")
    conn.execute(SQL("UPDATE wide SET {}").format(SQL(", ").join(SQL("{} = id").format(name) for name in names)))


def _wide_changes(conn: Conn) -> None:
    conn.execute("UPDATE wide SET c1599 = -1 WHERE id % 10 = 0")
    conn.execute("DELETE FROM wide WHERE id % 100 = 1")


def _tables(conn: Conn, count: int) -> None:
    for first in range(0, count, 500):
        for number in range(first, min(count, first + 500)):
            name = Identifier(f"t{number}")
            conn.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, a text, b text, c int, d date)").format(name))
            conn.execute(SQL("INSERT INTO {} VALUES (1, 'a', 'b', 1, now())").format(name))
        conn.commit()


def _some_tables(conn: Conn, count: int) -> None:
    for number in range(min(20, count)):
        rows = SQL("INSERT INTO {} SELECT g, 'a', 'b', 1, now() FROM generate_series(2, 100) g")
        conn.execute(rows.format(Identifier(f"t{number}")))


def _nested(conn: Conn) -> None:
    conn.execute("CREATE TABLE nested_rows (id int PRIMARY KEY, n int, note text)")
    conn.execute("""
        CREATE PROCEDURE nested(count int) LANGUAGE plpgsql AS $$
        BEGIN
            FOR i IN 1..count LOOP
                BEGIN
                    INSERT INTO nested_rows SELECT i * 10 + g, i, repeat('x', 100) FROM generate_series(0, 9) g;
                    UPDATE nested_rows SET n = -1 WHERE id = i * 10;
                    IF i % 2 = 0 THEN RAISE EXCEPTION 'back'; END IF;
                EXCEPTION WHEN raise_exception THEN NULL;
                END;
            END LOOP;
        END $$""")


def _nest(conn: Conn, count: int) -> None:
    conn.execute("CALL nested(%s)", [count])


def _run(case: Case, memory: str, options: argparse.Namespace) -> bool:
    with (
        EmbeddedPostgres(conf=_CONF) as server,
        tempfile.TemporaryDirectory(prefix="lakeproof-stress-") as lake,
    ):
        given = {"dsn": server.dsn(), "lake": lake, "memory": memory, "case": case.name}
        given |= {"value_mb": options.value_mb, "scale": options.scale}
        _write(server.dsn(), case.before)
        _write(server.dsn(), lambda c: c.execute("CREATE PUBLICATION stress FOR ALL TABLES"))
        return _child_process(given | {"step": "copy"}) and _child_process(given | {"step": "lake"})


def _write(dsn: str, write: Callable[[Conn], Any]) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn)


def _child_process(given: dict[str, Any]) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "bench.pipeline.stress", "--child", json.dumps(given)], cwd=ROOT, check=False
    )
    if done.returncode:
        print(f"{given['case']:<24}{given['step']:<22} failed with status {done.returncode}", flush=True)
    return done.returncode == 0


def _child(given: dict[str, Any]) -> None:
    """Run one step in this process: the copy, the drain, or everything that needs Spark."""
    source = SourceConfig(name=NAME, dsn=SecretStr(given["dsn"]), publication=NAME, slot=NAME)
    spark = SparkConfig(driver_memory=given["memory"])
    config = Config(path=Path(given["lake"]) / "w.yaml", lake=given["lake"], sources={NAME: source}, spark=spark)
    started = time.monotonic()
    try:
        if given["step"] == "lake":
            _in_spark(config, given)
            return
        if given["step"] == "copy":
            bootstrap(config, NAME, None, silent, Stop())
        else:
            drain(config, NAME, Until.caught_up())
    except LakeproofError as error:
        _print_line(given["case"], given["step"], time.monotonic() - started, f"failed: {error}")
        sys.exit(1)
    _print_line(given["case"], given["step"], time.monotonic() - started, "done")


def _in_spark(config: Config, given: dict[str, Any]) -> None:
    # Imported here, so that a step without Spark does not include its memory.
    from lakeproof.commands.compact import compact
    from lakeproof.commands.prove import prove
    from lakeproof.lake.spark.session import build_session

    (case,) = (c for c in _cases(given["value_mb"], given["scale"]) if c.name == given["case"])
    session = build_session(config.spark, "stress")
    jvm: Any = session._jvm  # noqa: SLF001  no public name for it
    pid = str(jvm.java.lang.ProcessHandle.current().pid())
    for step in ("first compaction", "compaction", "proof"):
        if step == "compaction":
            if case.change is None:
                continue
            _write(given["dsn"], case.change)
            _child_process(given | {"step": "drain"})
        started = time.monotonic()
        if step == "proof":
            outcome = ", ".join(sorted({p.status for p in prove(config, NAME, None, session).tables.values()}))
        else:
            reports = compact(config, NAME, session, silent, Stop())
            held = {str(t): h.reason for r in reports for t, h in r.held.items()}
            outcome = f"{len(reports)} cycles" + (f", held: {held}" if held else "")
        _print_line(case.name, step, time.monotonic() - started, outcome, pid)


def _print_line(case: str, step: str, wall_s: float, outcome: str, jvm: str | None = None) -> None:
    """Print one line; the peaks are those of the process so far."""
    jvm_mb = 0 if jvm is None else peak_mb(jvm)
    print(f"{case:<24}{step:<22}{wall_s:>9.1f}{peak_mb('self'):>11,.0f}{jvm_mb:>9,.0f}  {outcome}", flush=True)


def peak_mb(process: str) -> float:
    """Return the peak resident memory of a process so far."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024


if __name__ == "__main__":
    sys.exit(main())
