"""The jobs that only a person launches, from the launchpad: nothing starts them by itself.

The work is in `lakeproof.commands`, the jobs of sensors and schedules in `jobs.source`.

    rebuild.py    current tables from their history     recover.py    a new incarnation after a gap
    teardown.py   drops slot and publications           replace.py    an edited view: preview, apply, take back
    pause.py      tables out of the publication for a while, and back
    page.py       what they share: the tables, the field `confirm`, what a run's page shows
"""

from __future__ import annotations

import dagster as dg

from jobs.by_hand.pause import pause_jobs
from jobs.by_hand.rebuild import rebuild_job
from jobs.by_hand.recover import recover_job
from jobs.by_hand.teardown import teardown_job
from lakeproof.config.model import SourceConfig


def jobs_by_hand(source: SourceConfig) -> list[dg.JobDefinition]:
    """Return the jobs of one source with at least one table. A repair is a proof with `repair: true`."""
    return [rebuild_job(source), recover_job(source), teardown_job(source), *pause_jobs(source)]
