"""What refreshes views by itself; of those with declarative automation, the condition and the sensor that evaluates it.

The schedule that takes their place by default does not belong here (`schedules.py`): it looks at the lake, and so also sees
cuts that were not made in Dagster.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.current import compaction_units
from assets.support.keys import view_key
from jobs.names import VIEWS_REFRESH, compaction_job_name, run_tags
from lakeproof.config.model import Config
from lakeproof.config.view_graph import sources_of
from orchestration.schedules import scheduled_views, unseen_views
from orchestration.start import Start

NAME = "views_condition_sensor"
_INTERVAL_S = 30


def view_condition() -> dg.AutomationCondition[Any]:
    """Return the condition: a table has changed, or there is nothing yet; and no run is at it.

    An edited query is no news until it is applied, and what needs a look at the lake has a schedule (`schedules`).
    """
    conditions = dg.AutomationCondition
    has_news: dg.AutomationCondition[Any] = conditions.any_deps_updated() | conditions.missing().newly_true()
    return (has_news.since_last_handled() & ~conditions.in_progress()).with_label("a table has changed")


def conditional_views(config: Config) -> frozenset[dg.AssetKey]:
    """Return the views that have a condition."""
    is_chosen = config.dagster.views == "condition"
    views = scheduled_views(config).keys() - unseen_views(config)
    return frozenset(view_key(view) for view in views) if is_chosen else frozenset()


def refreshed_by(config: Config, view: str) -> str:
    """Return what refreshes a view without being asked, in a sentence for its page."""
    if view_key(view) in conditional_views(config):
        return f"`{NAME}` refreshes it when a table that it reads has a newer event."
    if view in scheduled_views(config):
        return f"`{VIEWS_REFRESH}_schedule` refreshes it when a source that it reads has a newer cut."
    reads = {*sources_of(config.views, view)}
    jobs = [
        compaction_job_name(unit.name)
        for unit in compaction_units(config)
        if unit.is_continuous and reads & {source.name for source in unit.sources}
    ]
    runs = " and ".join(f"`{job}`, which `{job}_sensor` keeps going," for job in sorted(jobs))
    return f"The run of {runs} refreshes it after each cut that has changes for it."


def view_condition_sensor(config: Config, start: Start) -> list[dg.SensorDefinition]:
    """Return the sensor, none if no view has a condition."""
    views = conditional_views(config)
    if not views:
        return []
    return [
        dg.AutomationConditionSensorDefinition(
            NAME,
            target=dg.AssetSelection.assets(*views),
            default_status=start.sensor,
            minimum_interval_seconds=_INTERVAL_S,
            run_tags=run_tags("views"),
            description="Refreshes each view whose tables have a newer event.",
        )
    ]
