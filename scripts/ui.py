"""Runs Dagster's web server and daemon with LAKEPROOF_CONFIG, or with lakeproof.yaml, until Ctrl-C.

The terminal shows warnings and errors, a line each; the whole output, with what runs write, is in a log file. Every process
ends with this one, however it ends. The assets and jobs do not belong here (`orchestration/`), nor the setup of a deployment
(`docker/`).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TextIO

from demo.processes import Children

ROOT = Path(__file__).resolve().parent.parent
_NAME = "ui"
# The daemon ends its code server and runs in order, and a drain makes its last segment durable.
_GRACE_S = 30.0
_LOOK_S = 0.5
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WORTH_SHOWING = re.compile(r" - (WARNING|ERROR|CRITICAL) - ")
_LINE_MAX = 500
_PR_SET_PDEATHSIG = 1


def command(port: int) -> list[str]:
    """Return the command for the guarded web server, the daemon and one code server, all on the loopback address."""
    # Hides the warning that `dg dev` supersedes it: that is another package, for the same three processes.
    dagster = [sys.executable, "-W", "ignore", "-m", "orchestration.dev", "-w", str(ROOT / "workspace.yaml")]
    return [*dagster, "-h", "127.0.0.1", "-p", str(port), "--log-level", "warning"]


def prepare_home(home: Path) -> None:
    """Create DAGSTER_HOME, with the settings for a developer's machine if it has none."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(ROOT / "orchestration" / "dagster.yaml", home / "dagster.yaml")


def show(log: TextIO) -> None:
    """Print the warnings and errors among the new lines of a log, without the stack traces behind them."""
    while line := log.readline():
        plain = _COLOUR.sub("", line).rstrip()
        if _WORTH_SHOWING.search(plain):
            print(plain[:_LINE_MAX], flush=True)


class _EndedError(Exception):
    """Somebody asks this process to end."""


def _end(signum: int, _frame: FrameType | None) -> None:
    raise _EndedError(signum)


def _listen() -> None:
    """Take the requests to end as an exception, also the end of `make`, which leaves this process without a word."""
    # A process started in the background ignores SIGINT; Dagster's processes would inherit that.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _end)
    if "MAKELEVEL" in os.environ:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _serve(children: Children, port: int) -> int:
    """Show what the processes of Dagster have to say until somebody ends them; return 1 if they end by themselves."""
    process = children.start(_NAME, command(port), dict(os.environ))
    path = children.state / f"{_NAME}.log"
    print(
        f"Dagster on {os.environ['LAKEPROOF_CONFIG']}: http://127.0.0.1:{port} (Ctrl-C ends it; log: {path})",
        flush=True,
    )
    with path.open(encoding="utf-8", errors="replace") as log:
        while process.poll() is None:
            show(log)
            time.sleep(_LOOK_S)
        show(log)
    print(f"lakeproof: Dagster has ended by itself; {path} says why", file=sys.stderr)
    return 1


def main() -> int:
    """Return 130 after Ctrl-C, and 2 with one line on stderr if there is no configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    config = Path(os.environ.get("LAKEPROOF_CONFIG") or ROOT / "lakeproof.yaml").absolute()
    if not config.is_file():
        remedy = "set LAKEPROOF_CONFIG=/path/to/lakeproof.yaml (docs/configuration.md), or run make demo"
        print(f"lakeproof: {config} does not exist; {remedy}", file=sys.stderr)
        return 2
    home = Path(os.environ.get("DAGSTER_HOME") or ROOT / ".cache" / "dagster").absolute()
    prepare_home(home)
    os.environ.update(LAKEPROOF_CONFIG=str(config), DAGSTER_HOME=str(home))
    state = home / f"ui-{port}"
    state.mkdir(exist_ok=True)
    children = Children(state, _GRACE_S)
    _listen()
    try:
        return _serve(children, port)
    except _EndedError as request:
        print("ending, in order: a drain makes durable what it has read", flush=True)
        return 128 + int(request.args[0])
    finally:
        # A second request would leave processes behind.
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        children.stop()


if __name__ == "__main__":
    sys.exit(main())
