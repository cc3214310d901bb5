"""Views refreshed by declarative automation: a condition on each, and the sensor that evaluates them.

The schedule that takes their place by default does not belong here (`schedules.py`): it looks at the lake, and so also sees
cuts that were not made in Dagster.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.support.keys import view_key
from jobs.names import run_tags
from lakeproof.config.model import Config
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
