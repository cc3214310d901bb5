"""`make demo`: PostgreSQL under a live workload, the whole pipeline, the proof of every table, and the Dagster UI.

This module starts and ends everything around the pipeline: the server, the workload, the drain, Dagster. The pipeline's own
steps do not belong here (`demo.steps`).
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from string import Template
from types import FrameType

import psycopg
from psycopg import sql

from demo import shop
from demo.output import step
from demo.processes import Children
from demo.server import EmbeddedPostgres, ServerError
from demo.state import DemoError, State, open_state
from scripts.ui import command as dagster_command

DEMO = Path(__file__).resolve().parent
SOURCE = "shop"
SEED = 20260101
# Low enough for two cores that also run PostgreSQL, the drain and Spark.
SHOP_TPS = 60
PGBENCH_TPS = 40
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The password of the pipeline's role; random, since other users of this machine can reach the server too.
_PASSWORD = secrets.token_urlsafe(24)
_DAGSTER_START_S = 90.0
# Hides the tools' own warnings from the screen with the steps; the tests treat every warning as an error.
_PYTHON = (sys.executable, "-W", "ignore", "-m")


def main() -> int:
    """Return 0 if every table is proved equal, 1 if not, 2 if something is missing, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="exit after the proof")
    parser.add_argument("--port", type=int, default=3000, help="the UI's port")
    arguments = parser.parse_args()
    # SIGINT too: it is ignored in a process that was started in the background.
    for signum in _ENDING:
        signal.signal(signum, _interrupt)
    try:
        return _demonstrate(None if arguments.once else arguments.port)
    except (DemoError, ServerError) as error:
        print(f"\nlakeproof demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped; no process is left", file=sys.stderr)
        return 130


def _demonstrate(port: int | None) -> int:
    started = time.monotonic()
    state, left_overs = open_state(DEMO / ".state")
    for left_over in left_overs:
        print(f"  ({left_over})")
    with ExitStack() as stack:
        stack.callback(state.close)
        stack.callback(state.remove_server)
        server = EmbeddedPostgres(state=state.server)
        stack.callback(server.stop)
        children = Children(state.root)
        stack.callback(children.stop)
        # A second Ctrl-C must not interrupt the cleaning up.
        for signum in _ENDING:
            stack.callback(signal.signal, signum, signal.SIG_IGN)
        _start_source(server)
        _start_workload(server, children)
        environment = _configure(state, server)
        status = _pipeline(state, children, environment)
        print(f"  {time.monotonic() - started:.0f} s since the start\n", flush=True)
        if port is not None and status in (0, 1):
            _leave_open(port, state, children, environment)
    return status


def _start_source(server: EmbeddedPostgres) -> None:
    with step("PostgreSQL 18, embedded") as note:
        server.start()
        note(f"port {server.port}")
    with step("two schemas: pgbench's tables and a shop"):
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            # The owner of the tables, and the role that replicates them: only `apply` needs the owner's rights.
            admin.execute("CREATE ROLE app LOGIN")
            role = sql.SQL("CREATE ROLE lakeproof LOGIN REPLICATION PASSWORD {} IN ROLE app")
            admin.execute(role.format(sql.Literal(_PASSWORD)))
            admin.execute("CREATE DATABASE shop OWNER app")
        server.run("pgbench", "--initialize", "--quiet", "--scale=1", "shop")
        with psycopg.connect(server.dsn("shop")) as owner:
            for table in ("accounts", "branches", "history", "tellers"):
                owner.execute(sql.SQL("ALTER TABLE {} OWNER TO app").format(sql.Identifier(f"pgbench_{table}")))
            owner.execute("SET ROLE app")
            shop.create_schema(owner)
            shop.fill(owner, random.Random(SEED))


def _start_workload(server: EmbeddedPostgres, children: Children) -> None:
    with step(f"a workload: the shop {SHOP_TPS} and pgbench {PGBENCH_TPS} transactions/s, until the end"):
        environment = {**os.environ, "LAKEPROOF_DEMO_DSN": server.dsn("shop")}
        children.start("workload", [*_PYTHON, "demo.workload", f"--seed={SEED}", f"--rate={SHOP_TPS}"], environment)
        login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGPASSWORD": server.password}
        pgbench = [str(server.program("pgbench")), "--no-vacuum", "--client=2", f"--rate={PGBENCH_TPS}", "--time=86400"]
        children.start("pgbench", [*pgbench, f"--random-seed={SEED}", "shop"], {**os.environ, **login})


def _configure(state: State, server: EmbeddedPostgres) -> dict[str, str]:
    """Write lakeproof.yaml and a DAGSTER_HOME; return the environment for everything else."""
    template = Template((DEMO / "lakeproof.yaml.in").read_text(encoding="utf-8"))
    query = DEMO / "views" / "revenue_per_product.sql"
    text = template.substitute(lake=state.root / "lake", port=server.port, sql=query)
    state.config.write_text(text, encoding="utf-8")
    state.dagster_home.mkdir()
    shutil.copyfile(DEMO.parent / "orchestration" / "dagster.yaml", state.dagster_home / "dagster.yaml")
    print(f"  configuration: {state.config}", flush=True)
    return {
        **os.environ,
        "LAKEPROOF_CONFIG": str(state.config),
        "LAKEPROOF_DEMO_PASSWORD": _PASSWORD,
        "DAGSTER_HOME": str(state.dagster_home),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "GX_ANALYTICS_ENABLED": "false",
    }


def _pipeline(state: State, children: Children, environment: dict[str, str]) -> int:
    """Run `demo.steps` beside a drain; return its exit status."""
    arguments = [str(state.config), SOURCE]
    children.start("drain", [*_PYTHON, "demo.drain", *arguments, str(state.end_of_drain)], environment)
    steps = children.start("steps", [*_PYTHON, "demo.steps", *arguments], environment, graceful=False, visible=True)
    while steps.poll() is None:
        _check_alive(children, except_for="steps")
        time.sleep(0.1)
    if steps.returncode not in (0, 1, 2):
        raise DemoError(f"a step failed (status {steps.returncode}):\n{children.log_tail('steps')}")
    children.stop_one("steps")
    return steps.returncode


def _leave_open(port: int, state: State, children: Children, environment: dict[str, str]) -> None:
    with step("Dagster: web server and daemon; its sensor takes over the drain"):
        state.end_of_drain.touch()
        children.wait_for("drain")
        children.start("dagster", dagster_command(port), environment)
        _wait_for_ui(port, children)
    print(f"\n  Dagster's UI: http://127.0.0.1:{port}   (Ctrl-C ends everything)")
    print(
        "  The workload continues. Two sensors keep a drain and a compaction running: a change is visible in seconds."
    )
    print("  In another terminal, from this folder:")
    print(f"    export LAKEPROOF_CONFIG={state.config} LAKEPROOF_DEMO_PASSWORD={_PASSWORD}")
    print("    .venv/bin/lakeproof status", flush=True)
    while True:
        _check_alive(children)
        time.sleep(0.5)


def _wait_for_ui(port: int, children: Children) -> None:
    # Bypass any proxy that the environment names.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _DAGSTER_START_S
    while time.monotonic() < deadline:
        _check_alive(children)
        try:
            with direct.open(f"http://127.0.0.1:{port}/server_info", timeout=2):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.3)
    raise DemoError(f"Dagster's web server did not answer in {_DAGSTER_START_S:.0f} s:\n{children.log_tail('dagster')}")


def _check_alive(children: Children, except_for: str | None = None) -> None:
    ended = children.ended(except_for)
    if ended is not None:
        raise DemoError(f"{ended} ended unexpectedly; the last lines of its log:\n{children.log_tail(ended)}")


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
