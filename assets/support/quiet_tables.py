"""Tables of a drain without changes: from time to time an event says that nothing came, if the drain is known to keep up.

Without it nobody could tell a quiet table from a drain that stands still. The intervals do not belong here (`freshness.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from assets.support.event_budget import EventBudget
from assets.support.freshness import Heartbeat
from assets.support.throttle import ChangeSummary
from lakeproof.drain.counts import LandedCounts
from lakeproof.errors import LakeproofError
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.state.slot import SlotStatus

# A drain with less than this before it keeps up: the server's own messages are as much.
_LAG_BYTES_MAX = 1 << 20
_PAUSE_S = 30.0


class QuietTables:
    """The tables that are due for such an event; the server is asked only then, and at most every 30 seconds."""

    def __init__(
        self, heartbeat: Heartbeat[TableName], is_waiting: Callable[[TableName], bool] = lambda _table: False
    ) -> None:
        self.heartbeat = heartbeat
        self._is_waiting = is_waiting
        self._confirmed: Lsn | None = None
        self._looked_s = float("-inf")

    def summaries(
        self, slot_status: Callable[[], SlotStatus], now_s: float, budget: EventBudget | None = None
    ) -> dict[TableName, ChangeSummary]:
        """Return summaries without changes, as many as `budget` pays for; none if nobody can say that the drain keeps up.

        A table that `is_waiting` for an event of its changes is not quiet.
        """
        due = [table for table in self.heartbeat.due(now_s) if not self._is_waiting(table)]
        if not due or now_s - self._looked_s < _PAUSE_S:
            return {}
        self._looked_s = now_s
        try:
            status = slot_status()
        except LakeproofError:
            return {}
        position = self._kept_up(status)
        if position is None:
            return {}
        paid = [table for table in due if budget is None or budget.spend(1, now_s)]
        return {table: ChangeSummary(position, position, LandedCounts()) for table in paid}

    def _kept_up(self, status: SlotStatus) -> Lsn | None:
        """Return the position up to which everything has landed, None if the drain has not moved since the last look."""
        state, before = status.state, self._confirmed
        if state is None or status.gap is not None or not state.active or state.confirmed_flush_lsn is None:
            return None
        self._confirmed = state.confirmed_flush_lsn
        moves = before is not None and self._confirmed > before
        return self._confirmed if moves or (state.lag_bytes or 0) <= _LAG_BYTES_MAX else None
