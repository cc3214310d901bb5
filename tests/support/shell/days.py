"""The day on which a test runs, where what it tests differs by the day in UTC."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta, timezone


def today_with(minutes: int) -> date:
    """Return today in UTC with so much of it left, in minutes; waits past midnight if less is left."""
    now = datetime.now(timezone.utc)
    left = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), timezone.utc) - now
    if left < timedelta(minutes=minutes):
        time.sleep(left.total_seconds() + 1)
    return datetime.now(timezone.utc).date()
