"""Runs Dagster's web server and daemon with LAKEPROOF_CONFIG, or with lakeproof.yaml, until Ctrl-C.

The assets and jobs do not belong here (`orchestration/`), nor the setup of a deployment (`docker/`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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


def main() -> int:
    """Return Dagster's own status; 2 with one line on stderr if there is no configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    # A process started in the background ignores SIGINT; Dagster's processes would inherit that, and the same for SIGTERM.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    config = Path(os.environ.get("LAKEPROOF_CONFIG") or ROOT / "lakeproof.yaml").absolute()
    if not config.is_file():
        remedy = "set LAKEPROOF_CONFIG=/path/to/lakeproof.yaml (docs/configuration.md), or run make demo"
        print(f"lakeproof: {config} does not exist; {remedy}", file=sys.stderr)
        return 2
    home = Path(os.environ.get("DAGSTER_HOME") or ROOT / ".cache" / "dagster").absolute()
    prepare_home(home)
    os.environ.update(LAKEPROOF_CONFIG=str(config), DAGSTER_HOME=str(home))
    print(f"Dagster on {config}: http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    try:
        return subprocess.call(command(port))
    except KeyboardInterrupt:
        # The terminal has sent Ctrl-C to Dagster too, which ends its own processes.
        return 130


if __name__ == "__main__":
    sys.exit(main())
