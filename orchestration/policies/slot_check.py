"""Decides when the slot drain sensor reports the result of its slot's check again.

The slot's own job runs every 15 minutes, the sensor every 15 s. So the sensor reports changes only: an event costs some 9 KB
in Dagster's database and is kept, a reading of the slot costs nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

# A restart of the server takes less, and a drain survives it.
OUTAGE_S = 60.0
# A level at its threshold may change with every reading.
PAUSE_S = 60.0

OK = "ok"
UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class LastReport:
    """State that one tick passes to the next: the last reported level, its time, and the start of an outage."""

    level: str = OK
    reported_at: float = 0.0
    unreachable_since: float | None = None

    @classmethod
    def from_cursor(cls, cursor: str | None) -> LastReport:
        """Read the sensor's cursor; anything else, also a cursor of another version of this file, is a fresh start."""
        try:
            check = json.loads(cursor or "{}")["check"]
            since = check["unreachable_since"]
            return cls(str(check["level"]), float(check["reported_at"]), None if since is None else float(since))
        except (ValueError, LookupError, TypeError):
            return cls()

    def to_json(self) -> dict[str, object]:
        """Return the part of the cursor named `check`."""
        return asdict(self)


def decide_report(last: LastReport, level: str, now: float) -> tuple[bool, LastReport]:
    """Return True if `level` must be reported now, and the state to keep. UNREACHABLE is reported after OUTAGE_S seconds."""
    since = (now if last.unreachable_since is None else last.unreachable_since) if level == UNREACHABLE else None
    last = replace(last, unreachable_since=since)
    if level == last.level or now - last.reported_at < PAUSE_S:
        return False, last
    if since is not None and now - since < OUTAGE_S:
        return False, last
    return True, replace(last, level=level, reported_at=now)
