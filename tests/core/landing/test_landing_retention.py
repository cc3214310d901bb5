"""Removing links: what is kept is still a chain without a gap, a crash leaves nothing behind, a zombie is still fenced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.continuity.same_history import compare_from
from lakeproof.errors import LakeError
from lakeproof.failpoints import VARIABLE
from lakeproof.landing.catalog_history import (
    append_catalog,
    catalog_manifests,
    newest_catalog_manifest,
    put_fingerprint,
)
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import MANIFESTS_CHECKED_ON_OPEN, Chain, FencedError, verify_chain
from lakeproof.landing.chain_start import read_chain_start
from lakeproof.landing.retention import first_needed, keys_before, put_chain_start, remove_below
from lakeproof.landing.sweep import sweep
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from tests.core.landing.landing_segments import OTHER_WRITER, START, WRITER, add_segment, new_chain, reopen, version

LATER = datetime.now(timezone.utc) + timedelta(days=1)
LINKS = 20


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a chain of twenty manifests of three rows each, at 2000, 3000 and so on."""
    folder = tmp_path_factory.mktemp("landing") / "lake"
    chain = new_chain(folder)
    for number in range(LINKS):
        add_segment(chain, 2000 + 1000 * number)
    return folder


@pytest.fixture
def chain(landing: Path, tmp_path: Path) -> Chain:
    """Return the chain of a lake of the test's own."""
    shutil.copytree(landing, tmp_path / "lake")
    return Chain.open(SourceLake(LocalStore(tmp_path / "lake"), LakePaths("shop")), Incarnation(1))


def _removed(chain: Chain, number: int) -> Chain:
    put_chain_start(chain, number)
    again = reopen(chain)
    remove_below(again, number)
    return reopen(chain)


def test_what_is_kept_is_still_a_chain(chain: Chain) -> None:
    """The chain is opened, verified, read and continued; a removed manifest is refused with the reason."""
    kept = _removed(chain, 12)
    assert (kept.first_number, kept.kept_from, kept.next_number) == (12, Lsn(12_000), LINKS + 1)
    assert verify_chain(kept) == LINKS + 1 - 12
    assert [m.number for m in kept.between(Lsn(12_000), Lsn(14_000))] == [12, 13]
    with pytest.raises(LakeError, match="removed up to 0/2EE0, as the retention says"):
        list(kept.between(Lsn(11_999), Lsn(14_000)))
    add_segment(kept, 90_000)
    assert verify_chain(reopen(chain)) == LINKS + 2 - 12
    numbers = {
        int(key.rpartition("/")[2][:20]) for key in chain.lake.store.list(chain.lake.paths.data(chain.incarnation))
    }
    assert numbers == set(range(12, LINKS + 2))
    again = _removed(reopen(chain), 15)
    assert verify_chain(again) == LINKS + 2 - 15
    assert len(chain.lake.store.list(chain.lake.paths.chain_starts(chain.incarnation))) == 1


def test_only_what_is_consumed_old_and_not_read_again_may_go(chain: Chain) -> None:
    """Each of the limits alone, and the links that every opening checks."""
    everything = LINKS + 1

    def needed(consumed: int = everything, position: int = 21_000, older_than: datetime = LATER) -> int:
        return first_needed(chain, consumed, Lsn(position), older_than)

    assert needed() == LINKS - MANIFESTS_CHECKED_ON_OPEN
    assert needed(consumed=7) == 7
    assert needed(position=9_500) == 9
    assert needed(older_than=datetime(2020, 1, 1, tzinfo=timezone.utc)) == 0


def test_what_no_history_has_is_named(chain: Chain) -> None:
    """A table without a copy stands in every later start, with the end of the last removed manifest that had its rows."""
    table, others = version().table, {Oid(1): Lsn(99_000)}
    put_chain_start(chain, 5, {version().oid: Lsn(5000)})
    start = reopen(chain).start
    assert start is not None
    assert (start.unread, start.unread_others) == ({}, None)
    put_chain_start(reopen(chain), 9, others)
    start = reopen(chain).start
    assert start is not None
    assert (start.unread, start.unread_others) == ({table: Lsn(9000)}, None)
    put_chain_start(reopen(chain), 12, {version().oid: Lsn(12_000)}, unread_max=0)
    start = reopen(chain).start
    assert start is not None
    assert (start.unread, start.unread_others) == ({}, Lsn(9000))


def test_a_chain_that_is_open_for_long_sees_what_was_removed(chain: Chain) -> None:
    """A drain's chain reads kept manifests as before, and reports the others as removed, not as damaged."""
    _removed(chain, 12)
    assert [m.number for m in chain.between(Lsn(13_000), Lsn(14_000))] == [13]
    with pytest.raises(LakeError, match="as the retention says"):
        chain.number_after(Lsn(5_000))


def test_a_past_that_was_removed_is_not_compared(chain: Chain) -> None:
    """Nothing has come for as long as the retention keeps: the server's history is compared from what is kept."""
    for end in (30_000, 31_000, 32_000):
        add_segment(chain, end, count=0)
    _removed(chain, LINKS + 1)
    assert compare_from(chain, Lsn(1500)) == Lsn(21_000)


class _Overtaken(LocalStore):
    """A store whose links up to 12 are removed by another process right before they are listed first."""

    def list(self, prefix: str, after: str = "") -> list[str]:
        kept = Path(self.url(prefix)).name != "manifests" or (self.root / "overtaken").exists()
        if not kept:
            (self.root / "overtaken").touch()
            lake = SourceLake.open(str(self.root), "shop")
            _removed(Chain.open(SourceLake(LocalStore(self.root), lake.paths), Incarnation(1)), 12)
        return super().list(prefix, after)


def test_a_chain_is_opened_while_links_are_removed(chain: Chain) -> None:
    """The chain's start is read again with each listing."""
    opened = Chain.open(SourceLake(_Overtaken(Path(chain.lake.url(""))), chain.lake.paths), chain.incarnation)
    assert (opened.first_number, opened.next_number) == (12, LINKS + 1)


@pytest.mark.parametrize("ordinals", [False, True])
def test_a_link_that_does_not_follow_the_removed_ones_is_found(chain: Chain, *, ordinals: bool) -> None:
    """The chain's start has the checksum of the last removed manifest, and the ordinal that comes behind it."""
    put_chain_start(chain, 18)
    chain_start = read_chain_start(chain.lake, chain.incarnation)
    assert chain_start is not None
    path = Path(chain.lake.url(chain.lake.paths.chain_start(chain.incarnation, 18)))
    by_ordinal = replace(chain_start, first_ordinal=chain_start.first_ordinal + 1)
    other = by_ordinal if ordinals else replace(chain_start, previous_sha256="0" * 64)
    path.write_bytes(other.to_bytes())
    with pytest.raises(LakeError, match="does not follow the manifest that was removed"):
        reopen(chain)


class _Flat(LocalStore):
    """A folder without folders, as an object store is, whose put does not ask for the file before."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(Path(chain.lake.store.location.url))

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        del follows
        super().put_if_absent(key, data, durable=durable)


def test_a_writer_that_was_left_behind_is_fenced_though_its_number_is_free(chain: Chain) -> None:
    """A number that has been given, consumed and removed is never won again; its link is not read, and goes next time."""
    zombies = [
        Chain(replace(chain.lake, store=s), chain.incarnation, chain.head) for s in (chain.lake.store, _Flat(chain))
    ]
    for zombie in zombies:
        zombie._open_at(5)
    _removed(chain, 12)
    for zombie, writer in zip(zombies, (OTHER_WRITER, "e" * 32), strict=True):
        assert not [k for k in keys_before(reopen(chain), 12) if "manifests" in k]
        with pytest.raises(FencedError, match="begins after this manifest"):
            add_segment(zombie, 7_500, writer=writer)
    opened = reopen(chain)
    assert verify_chain(opened) == LINKS + 1 - 12
    assert [k.rpartition("/")[2][:20] for k in keys_before(opened, 12) if "manifests" in k] == [f"{6:020d}"]
    sweep(opened)
    remove_below(opened, 12)
    assert keys_before(opened, 12) == []


def _record(chain: Chain, noticed: int, writer: str = WRITER, *, number: int | None = None) -> None:
    """A link with a reading of the catalog, or (with a number) the fingerprint's file of one alone."""
    fingerprint = Fingerprint({}, {}, {})
    put = put_fingerprint(chain.lake, chain.incarnation, fingerprint, number=number or chain.next_number, writer=writer)
    if number is None:
        append_catalog(chain, writer, CatalogRecord(Lsn(1), Lsn(noticed), *put), Lsn(noticed))


def _recorded(lake: Path) -> Chain:
    """Return a chain of six manifests, the fourth with the newest reading, and fourteen more."""
    result = new_chain(lake)
    for number in range(LINKS):
        if number == 3:
            _record(result, 4_500)
        add_segment(result, 2000 + 1000 * number)
    return result


@pytest.mark.parametrize("alone", [False, True])
def test_a_record_of_a_writer_that_was_left_behind_is_not_read(tmp_path: Path, *, alone: bool) -> None:
    """Its manifest, or only its fingerprint, lies between the kept record and the start, which names what is read."""
    chain = _recorded(tmp_path)
    zombie = Chain(chain.lake, chain.incarnation, chain.head)
    zombie._open_at(8)
    kept = _removed(chain, 12)
    assert kept.start is not None
    assert kept.start.catalog == 4
    if alone:
        _record(zombie, 99_000, OTHER_WRITER, number=9)
    else:
        with pytest.raises(FencedError, match="begins after this manifest"):
            _record(zombie, 99_000, OTHER_WRITER)
    for opened in (chain, reopen(chain)):
        newest = newest_catalog_manifest(opened)
        assert newest is not None
        assert newest.number == 4
        assert catalog_manifests(opened, Lsn(5_000)) == []
        assert [m.number for m in catalog_manifests(opened, Lsn(4_500))] == [4]
    again = _removed(reopen(chain), 15)
    assert again.start is not None
    assert (again.start.number, again.start.catalog) == (15, 4)
    folders = (again.lake.paths.catalogs(again.incarnation), again.lake.paths.manifests(again.incarnation))
    numbers = [{int(k.rpartition("/")[2][:20]) for k in again.lake.store.list(folder)} for folder in folders]
    assert numbers == [{4}, {0, 4, *range(15, LINKS + 2)}]


def test_a_named_record_stays_until_the_chain_start_after_it(tmp_path: Path) -> None:
    """Read both records if the newer one lies above the start; the next start removes the older one."""
    chain = _recorded(tmp_path)
    put_chain_start(chain, 12)
    _record(chain, 30_000)
    opened = reopen(chain)
    remove_below(opened, 12)
    assert [m.number for m in catalog_manifests(reopen(chain), Lsn(0))] == [4, LINKS + 2]
    add_segment(chain, 40_000)
    again = _removed(reopen(chain), LINKS)
    assert again.start is not None
    assert again.start.catalog is None
    assert [m.number for m in catalog_manifests(again, Lsn(0))] == [LINKS + 2]


@pytest.mark.parametrize("step", ["maintain.after_start", "maintain.amid_manifests"])
def test_a_removal_that_was_killed_is_finished_by_the_next(chain: Chain, step: str) -> None:
    """The kill comes after the chain's start or among the files: the chain is whole, and nothing stays behind."""
    code = (
        "import sys; from pathlib import Path; from lakeproof.landing.chain import Chain;"
        "from lakeproof.storage.source_lake import SourceLake;"
        "from lakeproof.landing.retention import put_chain_start, remove_below; from lakeproof.names import Incarnation;"
        "a = (SourceLake.open(sys.argv[1], 'shop'), Incarnation(1));"
        "put_chain_start(Chain.open(*a), 12); remove_below(Chain.open(*a), 12)"
    )
    env = {**os.environ, VARIABLE: step}
    done = subprocess.run([sys.executable, "-c", code, chain.lake.url("")], env=env, check=False, timeout=600)
    assert done.returncode == -9
    opened = reopen(chain)
    assert verify_chain(opened) == LINKS + 1 - 12
    assert keys_before(opened, 12) != []
    remove_below(opened, 12)
    assert keys_before(opened, 12) == []
    assert verify_chain(reopen(chain)) == LINKS + 1 - 12
    assert opened.head.end_lsn == START
