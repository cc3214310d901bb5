"""Decides when the slot drain sensor reports the result of its slot's check again.

The slot's own job runs every 15 minutes, the sensor every 15 s. So the sensor reports its first look and changes: an
event costs some 9 KB in Dagster's database and is kept, a reading of the slot costs nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from lakeproof.cli.results import from_json, to_json

# A restart of the server takes less, and a drain survives it.
OUTAGE_S = 60.0
# A level at its threshold may change with every reading.
PAUSE_S = 60.0

OK = "ok"
UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class LastReport:
    """The last reported level (empty before the first), its time, and the start of an outage."""

    level: str = ""
    reported_at: float = 0.0
    unreachable_since: float | None = None


@dataclass(frozen=True, slots=True)
class SlotCursor:
    """State that a tick passes on: the slot's check, and the recorded time up to which Dagster has all proofs."""

    state: str = ""  # for people alone
    check: LastReport = field(default_factory=LastReport)
    proof: str = ""

    @classmethod
    def from_text(cls, text: str | None) -> SlotCursor:
        """Read the sensor's cursor; anything else, also a cursor of another version of this file, is a fresh start."""
        try:
            return from_json(cls, json.loads(text or "{}"))
        except ValueError:
            return cls()

    def text(self) -> str:
        """Return it as the sensor keeps it."""
        return json.dumps(to_json(self))


def decide_report(last: LastReport, level: str, now: float) -> tuple[bool, LastReport]:
    """Return True if `level` must be reported now, and the state to keep. UNREACHABLE is reported after OUTAGE_S seconds."""
    since = (now if last.unreachable_since is None else last.unreachable_since) if level == UNREACHABLE else None
    last = replace(last, unreachable_since=since)
    if level == last.level or now - last.reported_at < PAUSE_S:
        return False, last
    if since is not None and now - since < OUTAGE_S:
        return False, last
    return True, replace(last, level=level, reported_at=now)
