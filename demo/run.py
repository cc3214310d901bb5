"""`make demo`: PostgreSQL under a live workload, the whole pipeline, the proof of every table, and the Dagster UI.

The steps stand here in order; how the server, the workload, the processes and Dagster's runs are handled is in the
modules beside this one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from string import Template
from types import FrameType
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from demo import shop
from demo.processes import Children
from demo.server import EmbeddedPostgres, ServerError
from demo.state import DemoError, State, open_state
from wal2delta.errors import Wal2DeltaError

if TYPE_CHECKING:
    from dagster import ExecuteInProcessResult

    from demo.dagster_runs import Runs, TableRow

DEMO = Path(__file__).resolve().parent
SOURCE = "shop"
SEED = 20260101
# Both together; two cores also carry PostgreSQL, the drain and Spark.
SHOP_TPS = 100
PGBENCH_TPS = 50
CYCLES = 3
_BETWEEN_CYCLES_S = 3.0
_PASSWORD = "wal2delta"  # noqa: S105  (of a throw-away server on the loopback address)
_DAGSTER_START_S = 90.0


def main() -> int:
    """0 if every table is proved equal, 1 if one is not, 2 if something is missing, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="exit after the proof")
    parser.add_argument("--port", type=int, default=3000, help="the UI's port")
    arguments = parser.parse_args()
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    try:
        return _demonstrate(None if arguments.once else arguments.port)
    except (DemoError, ServerError, Wal2DeltaError) as error:
        print(f"\nwal2delta demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped; no process is left", file=sys.stderr)
        return 130


def _demonstrate(port: int | None) -> int:
    started = time.monotonic()
    state, left_overs = open_state(DEMO / ".state")
    for found in left_overs:
        print(f"  (left over: {found})")
    with ExitStack() as stack:
        stack.callback(state.close)
        stack.callback(state.remove_server)
        server = EmbeddedPostgres(state=state.server)
        stack.callback(server.stop)
        children = Children(state.root)
        stack.callback(children.stop)
        _start_source(server)
        _start_workload(server, children)
        environment = _configure(state, server)
        rows = _pipeline(state, children, environment)
        _print_table(rows)
        equal = all(row.status == "equal" for row in rows)
        print(f"{_verdict(rows)} ({time.monotonic() - started:.0f} s)", flush=True)
        if port is not None:
            _leave_open(port, state, children, environment)
    return 0 if equal else 1


def _start_source(server: EmbeddedPostgres) -> None:
    with _step("PostgreSQL 18, embedded") as say:
        server.start()
        say(f"port {server.port}")
    with _step("two schemas: pgbench's tables and a shop"):
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            # Who owns the tables, and who replicates them: `apply` needs the first one's rights, the rest does not.
            admin.execute("CREATE ROLE app LOGIN")
            admin.execute(
                sql.SQL("CREATE ROLE wal2delta LOGIN REPLICATION PASSWORD {} IN ROLE app").format(
                    sql.Literal(_PASSWORD)
                )
            )
            admin.execute("CREATE DATABASE shop OWNER app")
        server.run("pgbench", "--initialize", "--quiet", "--scale=1", "shop")
        with psycopg.connect(server.dsn("shop")) as owner:
            for table in ("accounts", "branches", "history", "tellers"):
                owner.execute(sql.SQL("ALTER TABLE {} OWNER TO app").format(sql.Identifier(f"pgbench_{table}")))
            owner.execute("SET ROLE app")
            shop.make_schema(owner)
            shop.fill(owner, random.Random(SEED))


def _start_workload(server: EmbeddedPostgres, children: Children) -> None:
    with _step(f"a workload: the shop {SHOP_TPS} and pgbench {PGBENCH_TPS} transactions/s, until the end"):
        environment = {**os.environ, "WAL2DELTA_DEMO_DSN": server.dsn("shop")}
        workload = [sys.executable, "-m", "demo.workload", f"--seed={SEED}", f"--rate={SHOP_TPS}"]
        children.start("workload", workload, environment)
        login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGPASSWORD": server.password}
        pgbench = [str(server.program("pgbench")), "--no-vacuum", "--client=2", f"--rate={PGBENCH_TPS}", "--time=86400"]
        children.start("pgbench", [*pgbench, f"--random-seed={SEED}", "shop"], {**os.environ, **login})


def _configure(state: State, server: EmbeddedPostgres) -> dict[str, str]:
    """Write wal2delta.yaml and a DAGSTER_HOME; returns (and sets) the environment that everything else runs in."""
    template = Template((DEMO / "wal2delta.yaml.in").read_text(encoding="utf-8"))
    query = DEMO / "views" / "revenue_per_product.sql"
    text = template.substitute(lake=state.root / "lake", port=server.port, sql=query)
    state.config.write_text(text, encoding="utf-8")
    state.dagster_home.mkdir()
    shutil.copyfile(DEMO.parent / "orchestration" / "dagster.yaml", state.dagster_home / "dagster.yaml")
    os.environ.update(
        WAL2DELTA_CONFIG=str(state.config),
        WAL2DELTA_DEMO_PASSWORD=_PASSWORD,
        DAGSTER_HOME=str(state.dagster_home),
        DAGSTER_DISABLE_TELEMETRY="1",
        GX_ANALYTICS_ENABLED="false",
    )
    print(f"  configuration: {state.config}")
    return dict(os.environ)


def _pipeline(state: State, children: Children, environment: dict[str, str]) -> list[TableRow]:
    with _step("Dagster's location of that configuration"):
        # Here, not above: it takes seconds, and a mistake on this machine should be told before.
        from demo import dagster_runs

        runs = dagster_runs.Runs(state.config)
    _publish(runs)
    drain = [sys.executable, "-W", "ignore", "-m", "demo.drain", str(state.config), SOURCE]
    children.start("drain", drain, environment)
    with _step("bootstrap: one snapshot of all tables, while workload and drain go on") as say:
        say(_copied(runs, runs.run(f"{SOURCE}_bootstrap")))
    with _step("Spark"):
        runs.start_spark()
    for cycle in range(1, CYCLES + 1):
        with _step(f"compaction {cycle} of {CYCLES}") as say:
            say(_compacted(runs, runs.run(f"{SOURCE}_compaction")))
        _check_alive(children)
        time.sleep(_BETWEEN_CYCLES_S)
    with _step("the view revenue_per_product"):
        runs.run("views_refresh")
    with _step("proof: every table of PostgreSQL and of the lake, at one position"):
        result = runs.run(f"{SOURCE}_verification")
    _check_alive(children)
    return runs.proof(result, SOURCE)


def _publish(runs: Runs) -> None:
    from wal2delta.pipeline.publish import apply, plan

    with _step("publication, as `wal2delta plan` shows it") as say:
        planned = plan(runs.config, SOURCE)
        say("")
        for statement in planned.statements:
            print(f"      {statement}")
        apply(runs.config, SOURCE, planned)


def _copied(runs: Runs, result: ExecuteInProcessResult) -> str:
    from assets.keys import Layer

    tables = runs.metadata(result, Layer.SNAPSHOT)
    rows = sum(int(str(values["dagster/row_count"])) for values in tables.values())
    positions = {str(values["consistent_point"]) for values in tables.values()}
    return f"{len(tables)} tables, {rows:,} rows, all at {', '.join(sorted(positions))}"


def _compacted(runs: Runs, result: ExecuteInProcessResult) -> str:
    from assets.keys import Layer

    tables = runs.metadata(result, Layer.CURRENT)
    changes = sum(int(str(values["changes"])) for values in tables.values())
    position = {str(values["compacted_through_lsn"]) for values in tables.values()}
    return f"{changes:,} changes, cut at {', '.join(sorted(position)) or 'no new position'}"


def _check_alive(children: Children) -> None:
    ended = children.ended()
    if ended is not None:
        raise DemoError(f"{ended} ended by itself; the last of its log:\n{children.log_tail(ended)}")


def _print_table(rows: Sequence[TableRow]) -> None:
    cells = [("table", "rows in PostgreSQL", "rows in the lake", "position", "equal")]
    cells += [
        (str(row.table), _count(row.source_rows), _count(row.lake_rows), row.position or "-", _word(row.status))
        for row in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    print()
    for number, (table, source, lake, position, equal) in enumerate(cells):
        print(
            f"  {table:<{widths[0]}}  {source:>{widths[1]}}  {lake:>{widths[2]}}  {position:<{widths[3]}}  {equal}".rstrip()
        )
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    print()


def _count(rows: int | None) -> str:
    return "-" if rows is None else f"{rows:,}"


def _word(status: str) -> str:
    return "yes" if status == "equal" else status


def _verdict(rows: Sequence[TableRow]) -> str:
    unequal = [str(row.table) for row in rows if row.status != "equal"]
    if unequal:
        return f"NOT proved equal: {', '.join(unequal)}"
    return f"All {len(rows)} tables are equal, value by value, at one position"


def _leave_open(port: int, state: State, children: Children, environment: dict[str, str]) -> None:
    from scripts.ui import command

    with _step("Dagster: web server and daemon; its sensor takes the drain over"):
        children.stop_one("drain")
        children.start("dagster", command(port), environment)
        _await_ui(port, children)
    print(f"\n  Dagster's UI: http://127.0.0.1:{port}   (Ctrl-C ends everything)")
    print("  The workload goes on; the slot drain sensor keeps a drain running, and schedules compact every 2 minutes.")
    print("  In another terminal, from this folder:")
    print(f"    export WAL2DELTA_CONFIG={state.config} WAL2DELTA_DEMO_PASSWORD={_PASSWORD}")
    print("    .venv/bin/wal2delta status", flush=True)
    while children.ended() is None:
        time.sleep(0.5)
    _check_alive(children)


def _await_ui(port: int, children: Children) -> None:
    import urllib.error
    import urllib.request

    deadline = time.monotonic() + _DAGSTER_START_S
    while time.monotonic() < deadline:
        _check_alive(children)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.3)
    raise DemoError(
        f"Dagster's web server did not answer within {_DAGSTER_START_S:.0f} s: {children.log_tail('dagster')}"
    )


class _Say:
    """What a step adds to its line when it is done."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, text: str) -> None:
        self.text = text


@contextmanager
def _step(what: str) -> Iterator[_Say]:
    print(f"  {what} …", flush=True, end="")
    started, say = time.monotonic(), _Say()
    yield say
    print(f" {time.monotonic() - started:.1f} s{': ' if say.text else ''}{say.text}", flush=True)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
