"""Maintenance removes files only while it has its lock: on an object store another process may have taken over unnoticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.compaction.retention import Kept, remove_old
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.errors import TransientError
from lakeproof.events import Stop
from lakeproof.lake.cycle.upkeep.table_files import Damaged, remove_of_days
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.lease import Lease, hold_lease
from lakeproof.lake.records.store import cut_numbers, write_cut
from lakeproof.landing.retention import SpaceReclaimed, remove_keys
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation
from lakeproof.storage.local import LocalStore
from lakeproof.storage.open import register_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import LockHandle, StoredFile
from tests.core.lake.lake_document_samples import TABLE, VERSION

ONE, LATER = Incarnation(1), datetime.now(timezone.utc) + timedelta(days=400)
KEPT = Kept(RetentionConfig(cuts_s=0, landing_s=0), None)


class Store(LocalStore):
    """A store in which another process takes the lease over once a folder of this name has been listed."""

    taken_over_at = "never"
    lock_is_lost = False

    def entries(self, prefix: str, after: str = "") -> Iterator[StoredFile]:
        """List, and let the other process begin a lease."""
        yield from super().entries(prefix, after)
        if prefix.endswith(self.taken_over_at):
            self.put(LakePaths("shop").lease(99), b"{}")

    @contextmanager
    def lock(self, key: str, thing: str, reason: str) -> Iterator[LockHandle]:
        """Lock, and lose the lock if the test says so."""
        with super().lock(key, thing, reason):
            yield Handle(thing, lost=self.lock_is_lost)


class Handle:
    """A lock that may be lost."""

    def __init__(self, thing: str, *, lost: bool) -> None:
        self.thing, self.lost = thing, lost

    def check(self) -> None:
        """Raise if it is."""
        if self.lost:
            raise TransientError(self.thing, "its lock was not renewed in time", "start again")


def _table(folder: Path) -> Path:
    """Make a table of one file, and return another file: that of a commit in the making."""
    (folder / "_delta_log").mkdir(parents=True)
    added = json.dumps({"add": {"path": "0.parquet", "size": 1, "dataChange": True}})
    (folder / "_delta_log" / f"{0:020d}.json").write_text(added, encoding="utf-8")
    (folder / "0.parquet").write_bytes(b"rows")
    unnamed = folder / "cycle-000000000003-rows.parquet"
    unnamed.write_bytes(b"rows")
    return unnamed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A lake with two cuts of one table."""
    store = Store(tmp_path)
    register_store(store)
    lake = SourceLake(store, LakePaths("shop"))
    tables = {TABLE: CutTable(Lsn(10), Lsn(1), 0, 0, VERSION, ONE, ONE)}
    first = Cut(CycleNumber(1), CycleKind.APPLY, ONE, Lsn(10), None, tables, 1, "0" * 64, "2026-01-01T00:00:00Z")
    write_cut(lake, first)
    write_cut(lake, replace(first, number=CycleNumber(2)))
    return store


def _removed(lease: Lease) -> int:
    freed = remove_old(lease, KEPT, LATER, Stop(), Damaged("shop"))
    return sum(part.files for part in freed.values())


@pytest.mark.parametrize("layer", ["never", "history", "current"])
def test_no_file_of_a_commit_goes_that_another_process_makes(store: Store, layer: str) -> None:
    """It has taken the lease over while a table was listed: what is in the listing may be its own."""
    lake = SourceLake(store, LakePaths("shop"))
    places = {"history": lake.paths.history(TABLE), "current": lake.paths.current(TABLE)}
    unnamed = {name: _table(store.root / key) for name, key in places.items()}
    store.taken_over_at = places.get(layer, layer)
    with hold_lease(lake) as lease:
        if layer == "never":
            assert _removed(lease) == 3
            assert cut_numbers(lake) == [2]
        else:
            with pytest.raises(TransientError, match="another process has taken over"):
                _removed(lease)
    # Current comes first.
    assert unnamed["current"].exists() == (layer == "current")
    assert unnamed["history"].exists() == (layer != "never")


def test_nothing_goes_once_another_process_has_taken_over(store: Store) -> None:
    """Not even what both would remove: cuts that are old."""
    lake = SourceLake(store, LakePaths("shop"))
    with hold_lease(lake) as lease:
        store.put(lake.paths.lease(lease.epoch + 1), b"{}")
        with pytest.raises(TransientError, match="another process has taken over"):
            _removed(lease)
    assert cut_numbers(lake) == [1, 2]


@pytest.mark.parametrize("lost", [False, True])
def test_no_file_of_a_day_goes_that_another_process_makes(store: Store, *, lost: bool) -> None:
    """The lock on days is what keeps the two apart."""
    lake = SourceLake(store, LakePaths("shop"))
    unnamed = _table(store.root / lake.paths.daily(TABLE))
    store.lock_is_lost = lost
    freed = remove_of_days(lake, LATER, {})
    assert freed == (SpaceReclaimed() if lost else SpaceReclaimed(1, 4))
    assert unnamed.exists() == lost


def test_what_somebody_else_has_removed_meanwhile_is_no_error(store: Store) -> None:
    """Two sources of a group are maintained at the same time: a cut of the group goes with the first one's."""
    lake = SourceLake(store, LakePaths("shop"))
    keys = [lake.paths.group_cut("shops", 1), lake.paths.cut(CycleNumber(1))]
    store.put(lake.paths.group_cut("shops", 2), b"{}")
    size = store.size(keys[1])
    assert remove_keys(store, keys) == SpaceReclaimed(1, size)
    assert cut_numbers(lake) == [2]
