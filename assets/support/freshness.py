"""The age that the newest event of an asset may have, and the assets that are due for an event without changes.

The policies themselves are Dagster's, and `assets.catalog` puts them on the specs. Looking if an asset is up to date does
not belong here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Generic, TypeVar

import dagster as dg

from assets.support.keys import Layer
from lakeproof.config.model import Config, SourceConfig
from lakeproof.names import TableName

_HOUR_S = 3600.0
_EVENTS_S = 3 * _HOUR_S
_PROOF_S = {"hourly": 26 * _HOUR_S, "daily": 72 * _HOUR_S, "off": 0.0}
# Four runs of the slot's schedule.
_SLOT_S = _HOUR_S
# Dagster's policies know no shorter window.
_WINDOW_MIN_S = 60.0
# An asset without changes has this many events within its window.
_EVENTS_PER_WINDOW = 3

K = TypeVar("K", bound=Hashable)


def window_s(config: Config, source: SourceConfig, table: TableName, layer: Layer) -> float:
    """Return the greatest age of a table's newest event in a layer, in seconds; 0 if it may have any age."""
    own, common = source.table_config(table).freshness, source.freshness
    if layer is Layer.CHANGES:
        return _first(own.changes_s, common.changes_s, _EVENTS_S)
    if layer is Layer.CURRENT:
        is_continuous = source.compaction.mode == "continuous"
        return _first(own.current_s, common.current_s, _EVENTS_S if is_continuous else 0.0)
    if layer is Layer.PROOF:
        return _first(own.proof_s, common.proof_s, _PROOF_S[config.proof_interval])
    return 0.0


@lru_cache(maxsize=64)
def policy(seconds: float) -> dg.FreshnessPolicy | None:
    """Return the policy of a window: half of it is a warning; None for 0."""
    if not seconds:
        return None
    fail = max(seconds, 2 * _WINDOW_MIN_S)
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=fail), warn_window=timedelta(seconds=fail / 2))


def slot_policy() -> dg.FreshnessPolicy | None:
    """Return the policy of a slot, whose schedule runs every 15 minutes."""
    return policy(_SLOT_S)


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


class Heartbeat(Generic[K]):
    """The things that have had no event for a third of their window; `windows_s` has the windows, in seconds."""

    def __init__(self, windows_s: Mapping[K, float], now_s: float) -> None:
        self._every_s = {key: window / _EVENTS_PER_WINDOW for key, window in windows_s.items() if window}
        self._last_s = dict.fromkeys(self._every_s, now_s)

    def beat(self, keys: Iterable[K], now_s: float) -> None:
        """Note that these have had an event."""
        self._last_s.update((key, now_s) for key in keys if key in self._every_s)

    def due(self, now_s: float) -> list[K]:
        """Return what is due for an event, in order."""
        return [key for key, last in self._last_s.items() if now_s - last >= self._every_s[key]]
