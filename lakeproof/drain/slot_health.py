"""How long a slot will last: the WAL it keeps, how fast more comes, and when the server would take it away.

Reading the slot belongs to `lakeproof.postgres.replication_slot`; who is told belongs to the callers.

The rate needs two looks at the server's position. The landing has them: every link of the chain says where the WAL was when
it was written, and a drain that is at work writes one at least every `drain.progress_interval_s`. So nothing is kept
for it, and where the drain has stopped, the rate is the one since then. Where it was behind then, the rate is overrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from lakeproof.config.model import HealthConfig
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.storage.fields import time_of

# The rate is measured over at least this, where the chain is that old: a checkpoint or a backup comes in waves.
WINDOW_S = 300.0
_HOUR_S = 3600.0


class Level(Enum):
    """How bad it is; `error` is what somebody should be woken for."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SlotHealth:
    """A slot's prospects.

    `wal_bytes_per_s` is the rate of the whole cluster's WAL over `rate_over_s` seconds, None where the landing is too young
    to tell. `seconds_left` is the time until the server would invalidate the slot at that rate, for the reason `limit`
    (`max_slot_wal_keep_size` or `idle_replication_slot_timeout`); None where there is no limit or no rate.
    `unread_s` is how long nobody has read the slot, None while somebody does.
    """

    level: Level
    reasons: tuple[str, ...]
    wal_bytes_per_s: float | None
    rate_over_s: float | None
    seconds_left: float | None
    limit: str | None
    unread_s: float | None


def slot_health(
    slot: SlotState, end_of_wal: Lsn, chain: Chain | None, limits: HealthConfig, now: datetime | None = None
) -> SlotHealth:
    """Judge a slot; costs O(log n) links of the chain. `end_of_wal` was asked for just before `now`."""
    now = datetime.now(timezone.utc) if now is None else now
    rate, over_s = _rate(chain, end_of_wal, now)
    unread_s = _unread_s(slot, chain, now)
    left_s, limit = _left(slot, rate, unread_s)
    judged = [
        _judge(
            slot.retained_bytes,
            limits.retained_warn_bytes,
            limits.retained_error_bytes,
            "it keeps {:,.0f} bytes of WAL",
        ),
        _judge(unread_s, limits.unread_warn_s, limits.unread_error_s, "nobody has read it for {:,.0f} s"),
        _judge_left(left_s, limit, limits),
    ]
    if slot.lost:
        judged.append((Level.ERROR, "the server has invalidated it"))
    elif slot.wal_status == "unreserved":
        judged.append((Level.ERROR, "the server may remove WAL that it needs at the next checkpoint"))
    found = [(level, reason) for level, reason in judged if level is not Level.OK]
    worst = max((level for level, _ in found), key=list(Level).index, default=Level.OK)
    return SlotHealth(worst, tuple(reason for _, reason in found), rate, over_s, left_s, limit, unread_s)


def _rate(chain: Chain | None, end_of_wal: Lsn, now: datetime) -> tuple[float | None, float | None]:
    """Bytes of WAL per second since the newest link that is old enough, or since the first that is kept."""
    if chain is None:
        return None, None
    low, high = chain.first_number, chain.newest.number
    while low < high:
        middle = (low + high + 1) // 2
        if _age_s(chain, middle, now) >= WINDOW_S:
            low = middle
        else:
            high = middle - 1
    age_s = _age_s(chain, low, now)
    # Of a second or less, the clock's own coarseness would be the answer.
    if age_s <= 1.0:
        return None, None
    return max(0, end_of_wal - chain.manifest(low).end_lsn) / age_s, age_s


def _age_s(chain: Chain, number: int, now: datetime) -> float:
    return (now - time_of(chain.manifest(number).created_at)).total_seconds()


def _unread_s(slot: SlotState, chain: Chain | None, now: datetime) -> float | None:
    if slot.active:
        return None
    if slot.inactive_s is not None:
        return slot.inactive_s
    # Servers before 17 don't say; whoever read it has written to the landing last.
    return None if chain is None else max(0.0, _age_s(chain, chain.newest.number, now))


def _left(slot: SlotState, rate: float | None, unread_s: float | None) -> tuple[float | None, str | None]:
    found: list[tuple[float, str]] = []
    if slot.safe_wal_size is not None and rate:
        found.append((max(0, slot.safe_wal_size) / rate, "max_slot_wal_keep_size"))
    if slot.idle_timeout_s and unread_s is not None:
        found.append((max(0.0, slot.idle_timeout_s - unread_s), "idle_replication_slot_timeout"))
    return min(found, default=(None, None))


def _judge(value: float | None, warn: float, error: float, words: str) -> tuple[Level, str]:
    if value is None or value < warn:
        return Level.OK, ""
    return (Level.ERROR if value >= error else Level.WARN), words.format(value)


def _judge_left(left_s: float | None, limit: str | None, limits: HealthConfig) -> tuple[Level, str]:
    if left_s is None or left_s > limits.left_warn_s:
        return Level.OK, ""
    level = Level.ERROR if left_s <= limits.left_error_s else Level.WARN
    return level, f"at the present rate the server invalidates it in {left_s / _HOUR_S:,.1f} h ({limit})"
