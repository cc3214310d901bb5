"""The time that a slot will last, from its own numbers and from the landing's; each threshold on both of its sides."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.config.model import HealthConfig
from lakeproof.drain.slot_health import WINDOW_S, Level, slot_health
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource, Manifest, ManifestKind
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import text_of_time

END = Lsn(10_000_000)
SLOT = SlotState(
    name="s",
    plugin="pgoutput",
    slot_type="logical",
    database="app",
    two_phase=False,
    temporary=False,
    active=True,
    active_pid=7,
    confirmed_flush_lsn=END,
    restart_lsn=END,
    wal_status="reserved",
    safe_wal_size=None,
    invalidation_reason=None,
    retained_bytes=1000,
    lag_bytes=0,
)
LIMITS = HealthConfig(retained_warn_bytes=2000, retained_error_bytes=3000, left_warn_s=500.0, left_error_s=50.0)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A landing that began just now, 1 MB before the end of WAL."""
    head = ChainSource("7", 1, "app", 16384, "s", "s", 180_000)
    lake = SourceLake.open(str(tmp_path), "shop")
    start = Lsn(int(END) - 1_000_000)
    return Chain.create(lake, Incarnation(1), NewHead(start, head, "0" * 32))


def later(seconds: float) -> datetime:
    """A while after the landing began."""
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


def test_the_rate_is_the_landings(chain: Chain) -> None:
    """1 MB in 1000 s; and what is left of the server's patience at that rate."""
    health = slot_health(replace(SLOT, safe_wal_size=100_000), END, chain, LIMITS, later(1000))
    assert health.wal_bytes_per_s == pytest.approx(1000, rel=0.01)
    assert health.seconds_left == pytest.approx(100, rel=0.01)
    assert (health.limit, health.level) == ("max_slot_wal_keep_size", Level.WARN)


@pytest.mark.parametrize("landed", range(9))
def test_the_rate_is_of_the_last_five_minutes_or_a_little_more(chain: Chain, landed: int) -> None:
    """A manifest each 100 s, of 10 kB and then of 1 kB less each time; what came long before says nothing of today."""
    for number in range(1, landed + 1):
        end = Lsn(int(chain.end) + 11_000 - 1_000 * number)
        span, written_at = (chain.end, end), text_of_time(later(100.0 * number))
        place = (chain.next_number, chain.incarnation, chain.next_ordinal)
        chain.append(Manifest(ManifestKind.PROGRESS, *place, *span, None, "0" * 32, written_at))
    since = max((n for n in range(landed + 1) if 1001 - 100 * n >= WINDOW_S), default=0)
    health = slot_health(SLOT, END, chain, LIMITS, later(1001))
    bytes_since = int(END) - int(chain.manifest(chain.first_number + since).end_lsn)
    assert health.wal_bytes_per_s == pytest.approx(bytes_since / (1001 - 100 * since), rel=0.01)


@pytest.mark.parametrize(("over_s", "level"), [(50, Level.OK), (301, Level.WARN)])
def test_a_young_landing_is_not_judged_by_its_first_copy(chain: Chain, over_s: float, level: Level) -> None:
    """The WAL of a minute, with a copy in it, says nothing of a day ahead; within an hour it is worth a word at any age."""
    limits, rate = HealthConfig(), 1_000_000 / over_s

    def judged(left_s: float) -> Level:
        slot = replace(SLOT, safe_wal_size=int(left_s * rate))
        return slot_health(slot, END, chain, limits, later(over_s)).level

    assert limits.left_warn_s > 7200
    assert judged(limits.left_warn_s / 2) is level
    assert judged(1800) is not Level.OK


def test_without_a_limit_or_a_landing_nothing_is_made_up(chain: Chain) -> None:
    """Missing numbers are None."""
    assert slot_health(SLOT, END, chain, LIMITS, later(1000)).seconds_left is None
    health = slot_health(replace(SLOT, safe_wal_size=1), END, None, LIMITS, later(1000))
    assert (health.wal_bytes_per_s, health.seconds_left, health.level) == (None, None, Level.OK)


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"retained_bytes": 1999}, Level.OK, ""),
        ({"retained_bytes": 2000}, Level.WARN, "keeps 2,000 bytes"),
        ({"retained_bytes": 3000}, Level.ERROR, "keeps 3,000 bytes"),
        ({"safe_wal_size": 400_000}, Level.WARN, "max_slot_wal_keep_size"),
        ({"safe_wal_size": 40_000}, Level.ERROR, "max_slot_wal_keep_size"),
        ({"safe_wal_size": -5}, Level.ERROR, "invalidates it in 0 s"),
        ({"active": False, "inactive_s": 899.0}, Level.OK, ""),
        ({"active": False, "inactive_s": 900.0}, Level.WARN, "nobody has read it for 15.0 min"),
        ({"active": False, "inactive_s": 30_000.0}, Level.ERROR, "nobody has read it"),
        ({"active": False}, Level.WARN, "nobody has read it for 16.7 min"),
        ({"active": False, "inactive_s": 10.0, "idle_timeout_s": 50}, Level.ERROR, "idle_replication_slot_timeout"),
        ({"active": True, "idle_timeout_s": 50}, Level.OK, ""),
        ({"wal_status": "unreserved"}, Level.ERROR, "next checkpoint"),
        ({"wal_status": "lost"}, Level.ERROR, "invalidated"),
    ],
)
def test_each_threshold(chain: Chain, changes: dict[str, object], level: Level, words: str) -> None:
    """The worst counts, and says why."""
    health = slot_health(replace(SLOT, **changes), END, chain, LIMITS, later(1000))  # type: ignore[arg-type]  # of many types, by name
    assert health.level is level
    assert words in "; ".join(map(str, health.reasons))
