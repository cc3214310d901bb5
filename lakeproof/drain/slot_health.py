"""Judges how long a slot will last: the WAL it retains, the rate of new WAL, and when the server would invalidate it.

`lakeproof.postgres.replication_slot` reads the slot.

The rate needs the server's position at two times. The landing has the earlier one: every manifest has the WAL's position
when it was written, and a working drain writes one at least every `drain.progress_interval_s`. So nothing is stored for
this. If the drain has stopped, the rate is measured from its last manifest; it is too high if the drain was lagging then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from lakeproof.config.model import HealthConfig
from lakeproof.landing.chain import Chain
from lakeproof.landing.stuck import read_stuck
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.storage.times import time_of

# The rate is measured over at least this time, if the chain is that old: checkpoints and backups come in waves.
WINDOW_S = 300.0
_HOUR_S, _DAY_S = 3600.0, 86_400.0


class Level(Enum):
    """The severity of a slot's condition; `error` is worth waking somebody for."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


class HealthCause(Enum):
    """What is wrong with a slot, or will be."""

    RETAINED = "retained"
    UNREAD = "unread"
    TIME_LEFT = "time left"
    INVALIDATED = "invalidated"
    UNRESERVED = "unreserved"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class HealthReason:
    """One thing that is wrong, and how bad it is; `value` and `limit` are what the sentence needs.

    Of a stuck stream `limit` is the sentence.
    """

    cause: HealthCause
    level: Level
    value: float = 0.0
    limit: str | None = None

    def __str__(self) -> str:
        match self.cause:
            case HealthCause.RETAINED:
                return f"it keeps {self.value:,.0f} bytes of WAL"
            case HealthCause.UNREAD:
                return f"nobody has read it for {lasting(self.value)}"
            case HealthCause.TIME_LEFT:
                return f"at the present rate the server invalidates it in {lasting(self.value)} ({self.limit})"
            case HealthCause.INVALIDATED:
                return "the server has invalidated it"
            case HealthCause.UNRESERVED:
                return "the server may remove WAL that it needs at the next checkpoint"
            case HealthCause.STUCK:
                return self.limit or ""


@dataclass(frozen=True, slots=True)
class SlotHealth:
    """A slot's prospects.

    `wal_bytes_per_s` is the rate of the whole cluster's WAL over `rate_over_s` seconds, None if the landing is too young
    to measure. `seconds_left` is the time until the server would invalidate the slot at that rate, for the reason `limit`
    (`max_slot_wal_keep_size` or `idle_replication_slot_timeout`); None without a limit or a rate.
    `unread_s` is the time since anybody read the slot, None while somebody does.
    """

    level: Level
    reasons: tuple[HealthReason, ...]
    wal_bytes_per_s: float | None
    rate_over_s: float | None
    seconds_left: float | None
    limit: str | None
    unread_s: float | None

    @property
    def is_ending(self) -> bool:
        """True if a reason speaks of the time left."""
        return any(reason.cause is HealthCause.TIME_LEFT for reason in self.reasons)


def lasting(seconds: float) -> str:
    """Return a time for people: in seconds up to two minutes, then in minutes, hours or days."""
    for unit, size, least in (("days", _DAY_S, 2 * _DAY_S), ("h", _HOUR_S, 2 * _HOUR_S), ("min", 60.0, 120.0)):
        if seconds >= least:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def slot_health(
    slot: SlotState, end_of_wal: Lsn, chain: Chain | None, limits: HealthConfig, now: datetime | None = None
) -> SlotHealth:
    """Judge a slot; reads O(log n) manifests, and if its stream is stuck. `end_of_wal` was read just before `now`."""
    now = datetime.now(timezone.utc) if now is None else now
    rate, over_s = _rate(chain, end_of_wal, now)
    unread_s = _unread_s(slot, chain, now)
    left_s, limit = _left(slot, rate, over_s, unread_s)
    reasons = [
        *_judge(HealthCause.RETAINED, slot.retained_bytes, limits.retained_warn_bytes, limits.retained_error_bytes),
        *_judge(HealthCause.UNREAD, unread_s, limits.unread_warn_s, limits.unread_error_s),
        *_judge_left(left_s, limit, limits),
    ]
    if slot.lost:
        reasons.append(HealthReason(HealthCause.INVALIDATED, Level.ERROR))
    elif slot.wal_status == "unreserved":
        reasons.append(HealthReason(HealthCause.UNRESERVED, Level.ERROR))
    stuck = None if chain is None else read_stuck(chain)
    if stuck is not None:
        reasons.insert(0, HealthReason(HealthCause.STUCK, Level.ERROR, limit=stuck.words))
    worst = max((reason.level for reason in reasons), key=list(Level).index, default=Level.OK)
    return SlotHealth(worst, tuple(reasons), rate, over_s, left_s, limit, unread_s)


def _rate(chain: Chain | None, end_of_wal: Lsn, now: datetime) -> tuple[float | None, float | None]:
    """Return bytes of WAL per second since the newest manifest that is old enough, or since the first that is kept."""
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
    # Over a second or less the rate would mostly show how coarse the clock is.
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
    # Servers before 17 don't report it; the reader's last manifest shows when it last read.
    return None if chain is None else max(0.0, _age_s(chain, chain.newest.number, now))


def _left(
    slot: SlotState, rate: float | None, over_s: float | None, unread_s: float | None
) -> tuple[float | None, str | None]:
    limits: list[tuple[float, str]] = []
    if slot.safe_wal_size is not None and rate:
        left_s = max(0, slot.safe_wal_size) / rate
        # The WAL of a young landing's first copy is no rate for a time far ahead.
        if (over_s or 0.0) >= WINDOW_S or left_s <= _HOUR_S:
            limits.append((left_s, "max_slot_wal_keep_size"))
    if slot.idle_timeout_s and unread_s is not None:
        limits.append((max(0.0, slot.idle_timeout_s - unread_s), "idle_replication_slot_timeout"))
    return min(limits, default=(None, None))


def _judge(cause: HealthCause, value: float | None, warn: float, error: float) -> Iterator[HealthReason]:
    if value is not None and value >= warn:
        yield HealthReason(cause, Level.ERROR if value >= error else Level.WARN, value)


def _judge_left(left_s: float | None, limit: str | None, limits: HealthConfig) -> Iterator[HealthReason]:
    if left_s is not None and left_s <= limits.left_warn_s:
        level = Level.ERROR if left_s <= limits.left_error_s else Level.WARN
        yield HealthReason(HealthCause.TIME_LEFT, level, left_s, limit)
