"""The job that refreshes every view.

What a refresh does belongs to `assets.views`.
"""

from __future__ import annotations

import dagster as dg

from assets.support.keys import view_key
from jobs.names import VIEWS_REFRESH
from jobs.source import Job
from lakeproof.config.model import Config


def views_refresh_job(config: Config) -> Job | None:
    """All views in one process, with one Spark session; None where the configuration has no view."""
    if not config.views:
        return None
    return dg.define_asset_job(
        VIEWS_REFRESH,
        selection=dg.AssetSelection.assets(*(view_key(name) for name in config.views)),
        executor_def=dg.in_process_executor,
        description="Corrects every view to what its query gives at the newest cut of each source it reads.",
    )
