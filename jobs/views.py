"""The job that refreshes every view.

Refreshing a view does not belong here (`assets.views`).
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import view_key
from jobs.names import VIEWS_REFRESH, run_tags
from jobs.source import Job
from lakeproof.config.model import Config


def views_refresh_job(config: Config) -> Job | None:
    """Return the job: all views in one process, with one Spark session; None if the configuration has no view."""
    if not config.views:
        return None
    return dg.define_asset_job(
        VIEWS_REFRESH,
        selection=dg.AssetSelection.assets(*(view_key(name) for name in config.views)),
        executor_def=dg.in_process_executor,
        tags=run_tags("views"),
        description="Corrects every view to the result of its query at the newest cut of each source.",
    )
