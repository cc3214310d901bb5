"""When what has landed is worth a cycle: by rows, by age, and at once if it landed during the last cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.lake.planning.landing.waiting import LandingTail
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from tests.core.landing.landing_segments import START, add_segment, new_chain, reopen

_LIMITS = CompactionConfig(worth_age_s=2.0, worth_rows=100)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain that has just begun."""
    return new_chain(tmp_path / "lake")


def _is_due(tail: LandingTail, now_s: float) -> bool:
    return tail.look(now_s).are_worth_a_cycle(_LIMITS, now_s)


def test_rows_wait_since_the_look_before_they_were_seen(chain: Chain) -> None:
    """Between two looks they cost no cycle; behind a cycle, which is as long as the pause between two looks, they do."""
    tail = LandingTail.after(reopen(chain), START, 10.0)
    assert not _is_due(tail, 10.2)
    add_segment(chain, 2000)
    assert not _is_due(tail, 10.4)
    assert not _is_due(tail, 12.0)
    assert _is_due(tail, 12.2)
    # A cycle of three seconds takes them, and others land meanwhile.
    tail.drop_until(Lsn(2000))
    add_segment(chain, 3000)
    assert _is_due(tail, 15.2)
    tail.drop_until(Lsn(3000))
    assert not _is_due(tail, 99.0)


def test_many_rows_do_not_wait(chain: Chain) -> None:
    """A manifest without rows is nothing to do."""
    tail = LandingTail.after(reopen(chain), START, 10.0)
    add_segment(chain, 2000, count=0)
    assert not _is_due(tail, 50.0)
    add_segment(chain, 3000, count=100)
    assert _is_due(tail, 50.1)
