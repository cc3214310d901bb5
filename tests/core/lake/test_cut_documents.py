"""The bytes of a cut and of its reading follow what changed, whatever else there is."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.compaction.retention import old_documents
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.errors import LakeError
from lakeproof.lake.records.cuts import documents as cut_documents
from lakeproof.lake.records.cuts.documents import load_cut_doc
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.store import cut_at, cut_numbers, read_cut, write_cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from tests.core.lake.lake_document_samples import VERSION

ONE = Incarnation(1)
DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


def names(count: int) -> list[TableName]:
    """Tables of that many names."""
    return [TableName("public", f"table_{i}") for i in range(count)]


class CountingStore(LocalStore):
    """Counts the bytes that are put, notes the folders that are read, and ends the process at the put of a cut."""

    put_bytes = 0
    ends_at_cut = False

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        """Note the folder."""
        self.read.append(key.split("/")[2])
        return super().get(key)

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        """Put the document, and count its bytes."""
        if self.ends_at_cut and "/cuts/" in key:
            raise KeyboardInterrupt
        super().put_if_absent(key, data, durable=durable, follows=follows)
        self.put_bytes += len(data)


class Lake:
    """Cuts, one after the other; `written` has the bytes of each cycle's documents."""

    def __init__(self, folder: Path, tables: int, named_min: int = cut_documents.NAMED_MIN) -> None:
        self.named_min = named_min
        self.store = CountingStore(folder)
        self.source_lake = SourceLake(self.store, LakePaths("shop"))
        schemas = {t: replace(VERSION, table=t, oid=Oid(20_000 + i)) for i, t in enumerate(names(tables))}
        whole = {t: CutTable(Lsn(10), Lsn(1), 0, 0, version, ONE, ONE) for t, version in schemas.items()}
        self.written: list[int] = []
        self.cuts: list[Cut] = []
        self.end(Cut(CycleNumber(1), CycleKind.APPLY, ONE, Lsn(10), None, whole, 1, "0" * 64, DAY.isoformat()))

    def cycle(self, touched: int = 0, held: Mapping[TableName, Held] | None = None, *, more: int = 0) -> None:
        """Write a cut, in which these tables got a version, and others are held or new."""
        before = self.cuts[-1]
        position = Lsn(int(before.position) + 10)
        still = before.held if held is None else held
        tables = {t: place if t in still else replace(place, at_lsn=position) for t, place in before.tables.items()}
        for table in random.Random(int(position)).sample(sorted(tables.keys() - still.keys()), touched):
            tables[table] = replace(tables[table], history_version=tables[table].history_version + 1)
        for table in names(len(tables) + more)[len(tables) :]:
            tables[table] = CutTable(position, position, 0, 0, replace(VERSION, table=table), ONE, ONE)
        place = (DAY + timedelta(seconds=int(before.number))).isoformat()
        number = CycleNumber(before.number + 1)
        self.end(replace(before, number=number, position=position, tables=tables, held=still, created_at=place))

    def end(self, cut: Cut) -> None:
        """Write the cut."""
        before = self.store.put_bytes
        write_cut(self.source_lake, cut, self.named_min)
        self.cuts.append(cut)
        self.written.append(self.store.put_bytes - before)

    def read(self, cut: Cut) -> Cut:
        """Read the same cut from its documents."""
        return read_cut(self.source_lake, cut.number)


def _read_nothing_yet() -> None:
    """Let this process be one that has just begun."""
    cut_documents._schemas.clear()
    cut_documents._bases.clear()


def test_a_cycle_that_touches_one_table_of_hundreds_writes_its_bytes(tmp_path: Path) -> None:
    """Unchanged tables advance with the cut's own position, and their schemas are written once for ever."""
    lake = Lake(tmp_path, 500)
    for _ in range(30):
        lake.cycle(1)
    assert lake.written[0] > 200_000
    quiet = [size for size in lake.written[2:] if size < 20_000]
    assert len(quiet) == 29, "one base at the second cut, then what changed since it"
    assert max(quiet) < 500 + 30 * 360
    assert quiet[0] < 1_200
    assert all(lake.read(cut) == cut for cut in lake.cuts)


def test_what_all_cuts_take_follows_what_changed(tmp_path: Path) -> None:
    """A few tables that change all the time cost no more than twice their entries, with every base that is put."""
    lake = Lake(tmp_path, 220)
    for _ in range(40):
        lake.cycle(0)
        lake.cycle(5)
    bases = len(lake.store.list(lake.source_lake.paths.cut_bases))
    assert 3 <= bases <= 12
    assert sum(lake.written[2:]) / 80 < 12_000


def test_a_cut_is_read_with_two_documents_and_the_schemas_that_are_looked_at(tmp_path: Path) -> None:
    """A reader of many cuts reads one small document of each."""
    lake = Lake(tmp_path, 250)
    for _ in range(4):
        lake.cycle(1)
    _read_nothing_yet()
    read = lake.store.read
    read.clear()
    assert lake.read(lake.cuts[-1]).position == lake.cuts[-1].position
    assert read == ["cuts"]
    cut = lake.read(lake.cuts[-1])
    assert cut.tables[names(1)[0]] == lake.cuts[-1].tables[names(1)[0]]
    assert read == ["cuts", "cuts", "bases", "table_schemas"]
    assert len(cut.tables) == 250
    assert cut.held == {}
    assert len(read) == 4


@pytest.mark.parametrize("seed", range(4))
def test_every_cut_reads_back_after_any_cuts(tmp_path: Path, seed: int) -> None:
    """Tables that change, come, are held and go on; as the oldest cuts are removed, too."""
    rng = random.Random(seed)
    lake = Lake(tmp_path, 5, named_min=6)
    for _ in range(40):
        held = {
            t: Held(lake.cuts[-1].tables[t].at_lsn, HeldCause.KEY_NOT_UNIQUE, WayOut.SNAPSHOT)
            for t in names(3)
            if rng.random() < 0.2
        }
        existing = {t: lake.cuts[-1].held.get(t, h) for t, h in held.items()}
        lake.cycle(rng.randrange(3), existing, more=rng.random() < 0.1)
        if rng.random() < 0.2:
            now = DAY + timedelta(seconds=len(lake.cuts) - rng.randrange(1, 20))
            for key in old_documents(lake.source_lake, RetentionConfig(cuts_s=0.5), now):
                lake.store.delete(key)
    _read_nothing_yet()
    kept = cut_numbers(lake.source_lake)
    assert kept[-1] == lake.cuts[-1].number
    assert len(kept) < len(lake.cuts)
    assert [lake.read(lake.cuts[n - 1]) for n in kept] == [lake.cuts[n - 1] for n in kept]
    docs = [load_cut_doc(lake.source_lake, n) for n in kept]
    needed = {doc.base.number for doc in docs if doc is not None and doc.base is not None}
    assert len(lake.store.list(lake.source_lake.paths.cut_bases)) <= len(needed) + 1


def test_a_cycle_that_was_killed_before_its_cut_is_ended_on_the_same_base(tmp_path: Path) -> None:
    """Schemas and base exist already, and the cut's content may differ this time."""
    lake = Lake(tmp_path, 250)
    lake.store.ends_at_cut = True
    with pytest.raises(KeyboardInterrupt):
        lake.cycle(3)
    lake.store.ends_at_cut = False
    assert len(lake.store.list(lake.source_lake.paths.cut_bases)) == 1
    lake.cycle(1, {names(1)[0]: Held(Lsn(10), HeldCause.KEY_NOT_UNIQUE, WayOut.SNAPSHOT)})
    assert lake.read(lake.cuts[-1]) == lake.cuts[-1]


@pytest.mark.parametrize("folder", ["bases", "table_schemas"])
def test_damage_to_what_a_cut_is_made_of_is_named(tmp_path: Path, folder: str) -> None:
    """A base or a schema with another value is refused, and so is a missing one."""
    lake = Lake(tmp_path, 250)
    lake.cycle(1)
    places = sorted((tmp_path / "shop" / "cycles" / folder).iterdir())
    for place in places:
        place.write_bytes(
            place.read_bytes().replace(b'"history_version":0', b'"history_version":1').replace(b"id", b"ix")
        )
    for gone in (False, True):
        _read_nothing_yet()
        if gone:
            for place in places:
                place.unlink()
        cut = lake.read(lake.cuts[-1])
        with pytest.raises(LakeError, match=folder):
            dict(cut.tables)


def test_the_newest_cut_up_to_a_position_is_found(tmp_path: Path) -> None:
    """Cuts of the newest incarnation alone count: its positions may be lower than those before."""
    lake = Lake(tmp_path, 2)
    for _ in range(4):
        lake.cycle(1)
    for cut in lake.cuts:
        assert cut_at(lake.source_lake, cut.position) == cut
        assert cut_at(lake.source_lake, Lsn(int(cut.position) + 9)) == cut
    with pytest.raises(LakeError, match="no cut at or before"):
        cut_at(lake.source_lake, Lsn(9))
    newest = lake.cuts[-1]
    again = replace(newest, number=CycleNumber(newest.number + 1), incarnation=Incarnation(2), position=Lsn(20))
    lake.end(replace(again, tables={t: replace(place, at_lsn=Lsn(20)) for t, place in newest.tables.items()}))
    assert cut_at(lake.source_lake, Lsn(1000)) == lake.cuts[-1]
    with pytest.raises(LakeError, match="positions are those of incarnation 2"):
        cut_at(lake.source_lake, Lsn(19))
