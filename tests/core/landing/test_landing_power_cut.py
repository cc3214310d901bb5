"""The power goes at any fsync of a drain: what was acknowledged is there, and the next drain lands the rest, once.

`tests/support/faults/power_cut.py` describes what the disk may have then; snapshots' files have their own test.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import DrainConfig
from lakeproof.landing.catalog_history import append_catalog, newest_catalog, put_fingerprint
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain
from lakeproof.landing.retention import put_chain_start, remove_below
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from tests.core.drain.pretend_server import PretendDrain, PretendServer, landed
from tests.core.landing.landing_segments import START
from tests.support.faults.power_cut import PowerCut

# Of hundreds; each costs a drain, 0.1 s. The rare variants look at as many again, from other seeds.
STATES = 25
# Of them in `make check`.
SOME = 4
SEED = int(os.environ.get("LAKEPROOF_SEED", "0"))


@dataclass
class _Watch:
    """A reading of the catalog that differs, now and then: a fingerprint's file and a manifest."""

    chain: Chain
    writer: str
    left: int = 2

    @property
    def due(self) -> bool:
        return self.left > 0

    @property
    def wait_s(self) -> float:
        return 0.0 if self.due else 60.0

    @property
    def catalog_lsn(self) -> Lsn | None:
        return self.chain.newest.catalog_lsn

    def passed(self, partitions: object) -> bool:
        """No partition is announced."""
        del partitions
        return False

    def look(self, *, last: bool = False) -> None:
        del last
        self.left -= 1
        chain = self.chain
        put = put_fingerprint(
            chain.lake, chain.incarnation, Fingerprint({}, {}, {}),
            number=chain.next_number, writer=self.writer,
        )  # fmt: skip
        append_catalog(chain, self.writer, CatalogRecord(chain.newest.catalog_lsn, chain.end, *put), chain.end)

    def saw(self, version: SchemaVersion) -> None:
        del version


@pytest.mark.parametrize(
    ("number", "tried"), [(0, SOME), *(pytest.param(n, STATES, marks=pytest.mark.full) for n in range(60))]
)
def test_a_power_cut_at_any_sync_of_a_drain_loses_nothing_acknowledged_and_repeats_nothing(
    tmp_path: Path, number: int, tried: int
) -> None:
    """The beginning of the landing, segments, fingerprints and progress, in several connections; then the power goes."""
    print(f"LAKEPROOF_SEED={SEED} number {number}")  # noqa: T201  (to run a failure again)
    rng = random.Random(f"{SEED}/{number}")
    server = PretendServer(piece=40)
    server.random(rng, 12)
    disk = tmp_path / "disk"
    disk.mkdir()
    with PowerCut(disk) as cut:
        drain = _drain(server, disk / "lake")
        drain.on_flushed = lambda flushed: cut.mark(flushed.manifest.end_lsn)
        chain = drain.open()
        for transaction in server.transactions:
            drain.attempt(chain, transaction.end)
    states = list(cut.states(rng, 40))
    assert len(states) > 100
    for state in rng.sample(states, tried):
        shutil.rmtree(tmp_path / "back", ignore_errors=True)
        lake = state.build(tmp_path / "back") / "lake"
        server.confirmed = max(state.marks, default=START)
        try:
            chain = _drain(server, lake).open()
            assert chain.end >= server.confirmed
            so_far = landed(chain)
            assert so_far == [row for row in server.rows if row[0] <= chain.end.value]
            newest_catalog(chain)
            assert landed(_drain(server, lake).run(attempts_max=1)) == server.rows
        except BaseException:
            print(state)  # noqa: T201  (which one)
            raise


@pytest.mark.parametrize(
    ("number", "tried"), [(0, SOME), *(pytest.param(n, STATES, marks=pytest.mark.full) for n in range(20))]
)
def test_a_power_cut_while_old_links_are_removed_leaves_a_chain(tmp_path: Path, number: int, tried: int) -> None:
    """A power cut during retention may lose any of its steps: the chain opens, and a drain goes on at its end."""
    print(f"LAKEPROOF_SEED={SEED} number {number}")  # noqa: T201  (to run a failure again)
    rng = random.Random(f"{SEED}/{number}")
    server = PretendServer(piece=5)
    for _ in range(8):
        server.commit(2)
    disk = tmp_path / "disk"
    disk.mkdir()
    drain = _drain(server, disk / "lake")
    chain = drain.open()
    for transaction in server.transactions:
        drain.attempt(chain, transaction.end)
    later = server.commit(3)
    with PowerCut(disk) as cut:
        for first in (4, 6):
            chain = drain.open()
            put_chain_start(chain, first)
            remove_below(drain.open(), first)
            cut.mark(first)
    states = list(cut.states(rng, 60))
    for state in rng.sample(states, min(tried, len(states))):
        shutil.rmtree(tmp_path / "back", ignore_errors=True)
        again = _drain(server, state.build(tmp_path / "back") / "lake")
        server.confirmed = server.transactions[-2].end
        chain = again.open()
        assert chain.first_number >= max(state.marks, default=0)
        rows = landed(again.run(attempts_max=1))
        assert rows == [row for row in server.rows if row[0] > chain.kept_from.value]
        assert rows[-1][0] == later.end.value


def _drain(server: PretendServer, lake: Path) -> PretendDrain:
    limits = DrainConfig(flush_interval_s=0.001, progress_interval_s=0.001, spill_bytes=1000, segment_files=1)
    return PretendDrain(server, lake, limits, make_watch=_Watch)
