"""Decides when the slot drain sensor tells the check of its slot anew.

Pure: no server, instance or clock is touched here. What a slot's state means belongs to `assets.slots`.

The slot's own runs come every 15 minutes, the sensor looks every 5 s. So it tells what has changed: an event costs some 9 KB
in Dagster's database and is kept, a look costs nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

# A restart of the server takes less, and a drain lives through it.
OUTAGE_S = 60.0
# A level at its threshold may change with every look.
PAUSE_S = 60.0

OK = "ok"
UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Told:
    """What one look must tell the next: the level that was told last and when, and since when nothing can be seen."""

    level: str = OK
    at: float = 0.0
    unseen_since: float | None = None

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Told:
        """Read the sensor's cursor; anything else, also from another version of this file, is a new beginning."""
        try:
            found = json.loads(cursor or "{}")["check"]
            since = found["unseen_since"]
            return cls(str(found["level"]), float(found["at"]), None if since is None else float(since))
        except (ValueError, LookupError, TypeError):
            return cls()

    def to_json(self) -> dict[str, object]:
        """Return what the cursor carries as `check`."""
        return asdict(self)


def decide(told: Told, level: str, now: float) -> tuple[bool, Told]:
    """Return whether `level` is to be told now, and what to remember; UNSEEN is told if it has lasted for OUTAGE_S."""
    since = (now if told.unseen_since is None else told.unseen_since) if level == UNSEEN else None
    told = replace(told, unseen_since=since)
    if level == told.level or now - told.at < PAUSE_S:
        return False, told
    if since is not None and now - since < OUTAGE_S:
        return False, told
    return True, replace(told, level=level, at=now)
