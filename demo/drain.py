"""One drain of the demonstration's source as a Dagster run, in a process of its own, until SIGTERM.

The drain belongs to `wal2delta.pipeline.drain`; here it only waits for the slot, so that it starts while the first
copy is still going on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import dagster as dg

from assets.changes import DrainRun
from jobs.names import drain_job_name
from orchestration.build import build
from resources import Settings
from wal2delta.config.load import load

_WAIT_S = 120.0


def main() -> int:
    """0 after a clean end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("source")
    arguments = parser.parse_args()
    definitions = build(load(arguments.config))
    settings = Settings(config_path=str(arguments.config))
    deadline = time.monotonic() + _WAIT_S
    while settings.slot_state(arguments.source) is None:
        if time.monotonic() > deadline:
            print(f"no slot appeared within {_WAIT_S:.0f} s", file=sys.stderr)
            return 1
        time.sleep(0.1)
    job = drain_job_name(arguments.source)
    try:
        definitions.resolve_job_def(job).execute_in_process(
            run_config=dg.RunConfig(
                ops={f"{arguments.source}_drain": DrainRun(until="max_seconds", max_seconds=3600.0)}
            ),
            instance=dg.DagsterInstance.get(),
        )
    except dg.DagsterExecutionInterruptedError:
        # SIGTERM: the drain has made its last segment durable and told the slot.
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
