"""The power goes at any fsync of a bootstrap: what a document names is whole, and the next goes on from there.

`tests/support/faults/power_cut.py` describes what the disk may have then; `tests/core` has a test for the drain.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.landing.chain import verify_chain
from lakeproof.landing.segments.reader import verify
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import finished_tables, read_end, read_request, read_snapshot, snapshot_folders
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.power_cut import PowerCut, State
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_rows import copied_and_landed

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
ONE = Incarnation(1)
ITEMS, LOG = TableName("public", "items"), TableName("public", "log")
STATES, STATES_GONE_ON_FROM = 150, 3


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 8))])
def test_a_power_cut_at_any_sync_of_a_bootstrap_leaves_nothing_half(
    drained: Drained, tmp_path: Path, number: int
) -> None:
    """Record, fingerprint, head, chunks, parts; the slot is on the server, and nobody has moved it."""
    print(f"LAKEPROOF_SEED={SEED} number {number}")  # noqa: T201  (to run a failure again)
    rng = random.Random(f"{SEED}/{number}")
    drained.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "CREATE TABLE log (at int, what text)",
        "ALTER TABLE log REPLICA IDENTITY FULL",
        "INSERT INTO items SELECT g, md5(g::text) FROM generate_series(1, 3000) g",
        "INSERT INTO log SELECT g % 5, 'x' FROM generate_series(1, 300) g",
    )
    disk = tmp_path / "disk"
    disk.mkdir()
    with PowerCut(disk) as cut:
        bootstrap(_config(replace(drained, lake=disk / "lake")), SOURCE)
        cut.mark("copied")
    states = list(cut.states(rng, 25))
    for state in rng.sample(states, min(STATES, len(states))):
        _check(_back(drained, state, tmp_path), whole=bool(state.marks))
    # Before the record is there, the slot that it names was not made.
    going = [state for state in states if _has_record(state)]
    for state in rng.sample(going, STATES_GONE_ON_FROM):
        back = _back(drained, state, tmp_path)
        bootstrap(_config(back), SOURCE)
        _check(back, whole=True)
    drained.database.execute("UPDATE items SET note = 'changed' WHERE id % 7 = 0", "DELETE FROM log WHERE at = 3")
    back.drain()
    assert copied_and_landed(back, ITEMS) == back.source_rows(ITEMS)
    assert verify_chain(back.chain()) == back.chain().next_number


def _back(drained: Drained, state: State, tmp_path: Path) -> Drained:
    print(state)  # noqa: T201  (which one a failure is of)
    shutil.rmtree(tmp_path / "back", ignore_errors=True)
    return replace(drained, lake=state.build(tmp_path / "back") / "lake")


def _has_record(state: State) -> bool:
    return bool(state.tree().get(f"lake/{LakePaths(SOURCE).incarnation_record(ONE)}"))


def _config(shop: Drained) -> Config:
    config = shop.config()
    settings = SnapshotConfig(connections=2, chunk_pages=8)
    source = config.sources[SOURCE].model_copy(update={"snapshot": settings})
    return config.model_copy(update={"sources": {SOURCE: source}})


def _check(shop: Drained, *, whole: bool) -> None:
    """Every document can be read, and every chunk that one names is what was written."""
    lake = SourceLake.open(str(shop.lake), SOURCE)
    for folder in snapshot_folders(lake, ONE):
        read_request(lake, folder)
        read_end(lake, folder)
        if not lake.store.exists(f"{folder}/snapshot-000000.json"):
            continue
        for table in read_snapshot(lake, folder).tables.values():
            for chunk in table.chunks:
                verify(lake.store, f"{folder}/{chunk.path}", "chunk", chunk.bytes, chunk.sha256)
    if whole:
        assert finished_tables(lake, ONE).keys() == {ITEMS, LOG}
        assert copied_and_landed(shop, ITEMS) == shop.source_rows(ITEMS)
