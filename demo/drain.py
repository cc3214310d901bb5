"""One drain of the demonstration's source as a Dagster run, in its own process, until it is asked to end.

It waits for the landing's first manifest, so that it starts while the first copy is still going on. The drain itself does
not belong here (`lakeproof.commands.drain`).
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import uuid
from pathlib import Path

import dagster as dg

from assets.changes import DrainRun
from assets.support.engine_call import end_soon
from demo.dagster_runs import LISTED
from jobs.names import SourceJob
from lakeproof.config.load import load
from lakeproof.landing.chain import newest_incarnation
from lakeproof.storage.source_lake import SourceLake
from orchestration.build import build

_WAIT_S = 120.0
_SECONDS_MAX = 3600.0
# A demonstration is short: an event per table every 10 s, not every minute.
_EVENT_S = 10.0


def main() -> int:
    """Return 0 after a clean end, 1 if no landing appeared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("source")
    parser.add_argument("end", type=Path, help="the drain ends when this file appears")
    arguments = parser.parse_args()
    config = load(arguments.config)
    job = build(config).resolve_job_def(SourceJob.DRAIN.of(arguments.source))
    lake = SourceLake.open(config.location, arguments.source)
    deadline = time.monotonic() + _WAIT_S
    while newest_incarnation(lake) is None:
        if time.monotonic() > deadline:
            print(f"no landing appeared within {_WAIT_S:.0f} s", file=sys.stderr)
            return 1
        time.sleep(0.1)
    run = DrainRun(until="max_seconds", max_seconds=_SECONDS_MAX, event_seconds=_EVENT_S)
    # No line on stderr per event: the UI shows them.
    quiet = {"console": {"config": {"log_level": "CRITICAL"}}}
    run_config = dg.RunConfig(ops={f"drain_{arguments.source}": run}, loggers=quiet)
    instance, run_id = dg.DagsterInstance.get(), str(uuid.uuid4())
    threading.Thread(target=_end_at, args=(arguments.end,), daemon=True).start()
    job.execute_in_process(run_config=run_config, instance=instance, run_id=run_id, tags=LISTED)
    return 0


def _end_at(end: Path) -> None:
    """End the drain so that its run succeeds: one that is terminated would be shown as canceled, though all went well."""
    while not end.exists():
        time.sleep(0.2)
    end_soon()


if __name__ == "__main__":
    sys.exit(main())
