"""The sweep: left-overs go, named files stay, and it reads few manifests, however long the chain is."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.errors import LakeError
from lakeproof.landing.chain import MANIFESTS_CHECKED_ON_OPEN, Chain, verify_chain
from lakeproof.landing.sweep import NUMBERS_MAX, sweep
from tests.core.landing.landing_segments import OTHER_WRITER, WRITER, add_segment, new_chain, reopen


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain that has just begun."""
    return new_chain(tmp_path / "lake")


def _leave(chain: Chain, number: int, writer: str) -> str:
    """A file of a writer that was killed before its manifest."""
    key = f"{chain.lake.paths.data(chain.incarnation)}/{number:020d}-{writer}-0000.parquet"
    chain.lake.store.put(key, b"left over")
    return key


def _damage(chain: Chain, numbers: range) -> None:
    for number in numbers:
        Path(chain.lake.url(chain.lake.paths.manifest(chain.incarnation, number))).write_bytes(b"{}\n")


def _grow(chain: Chain, segments: int, writer: str = WRITER) -> None:
    for _ in range(segments):
        add_segment(chain, int(chain.end) + 1000, writer=writer)


def test_a_long_chain_of_one_writer_costs_no_manifest_beyond_its_end(chain: Chain) -> None:
    """A writer that has gone on has named all of its earlier files: what would be read of the rest is damaged, unnoticed."""
    _grow(chain, 40)
    opened = reopen(chain)
    _damage(chain, range(1, chain.newest.number - MANIFESTS_CHECKED_ON_OPEN))
    assert not sweep(opened).removed
    with pytest.raises(LakeError, match="has format"):
        verify_chain(opened)


def test_many_short_runs_cost_a_bounded_number_of_manifests(chain: Chain) -> None:
    """Each `drain --once` is a writer of one segment: the newest numbers are looked at, and no others are read."""
    for number in range(40):
        _grow(chain, 1, writer=f"{number:032x}")
    opened = reopen(chain)
    _damage(chain, range(1, chain.newest.number - NUMBERS_MAX))
    assert not sweep(opened).removed


def test_what_crashed_writers_left_at_one_number_goes_when_the_chain_has_passed_it(chain: Chain) -> None:
    """Twenty starts that were killed at once leave files of one number; nothing goes before that number is given."""
    _grow(chain, 3)
    left = sorted(_leave(chain, chain.next_number, f"{number:032x}") for number in range(20))
    assert not sweep(reopen(chain)).removed
    _grow(chain, 1, writer=OTHER_WRITER)
    assert sweep(reopen(chain)).removed == left
    assert verify_chain(reopen(chain)) == 5


def test_the_segment_that_was_begun_beside_the_last_one_goes_too(chain: Chain) -> None:
    """A writer leaves files of its last two numbers; the chain goes on with another's, a number of which has no rows."""
    _grow(chain, 3)
    left = [_leave(chain, chain.next_number + n, WRITER) for n in (0, 1)]
    add_segment(chain, int(chain.end) + 1000, count=0, writer=OTHER_WRITER)
    assert sweep(reopen(chain)).removed == left[:1]
    _grow(chain, 1, writer=OTHER_WRITER)
    assert sweep(reopen(chain)).removed == left[1:]
    assert verify_chain(reopen(chain)) == 6
