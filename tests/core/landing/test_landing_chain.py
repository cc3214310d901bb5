"""The chain: links follow one another, one writer wins a number, damage is named, opening stays cheap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.errors import InvariantError, LakeError, TransientError
from lakeproof.landing.chain import (
    MANIFESTS_CHECKED_ON_OPEN,
    Chain,
    FencedError,
    NewHead,
    newest_incarnation,
    verify_chain,
)
from lakeproof.landing.segments.manifest import Manifest, ManifestKind
from lakeproof.landing.segments.row_order import ROOM
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.landing.sweep import sweep
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.local import LocalStore
from lakeproof.storage.source_lake import SourceLake
from tests.core.landing.landing_segments import HEAD, OTHER_WRITER, START, WRITER, add_segment, new_chain, reopen


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain that has just begun."""
    return new_chain(tmp_path / "lake")


def _file(chain: Chain, number: int) -> Path:
    return Path(chain.lake.url(chain.lake.paths.manifest(chain.incarnation, number)))


def test_a_new_chain_ends_where_it_starts(chain: Chain) -> None:
    """The chain starts and ends at the slot's consistent point, and its head has the owner."""
    assert (chain.end, chain.next_number, chain.head.kind, chain.head.source) == (START, 1, ManifestKind.HEAD, HEAD)


def test_an_incarnation_begins_once(chain: Chain) -> None:
    """The second head is refused."""
    with pytest.raises(LakeError, match="begun already"):
        Chain.create(chain.lake, chain.incarnation, NewHead(START, HEAD, WRITER))


def test_another_process_finds_the_end(chain: Chain) -> None:
    """Opened again, the chain goes on."""
    add_segment(chain, 2000)
    add_segment(chain, 3000, count=0)
    again = reopen(chain)
    assert (again.end, again.next_number, again.newest.kind) == (Lsn(3000), 3, ManifestKind.PROGRESS)
    add_segment(again, 4000)
    assert verify_chain(reopen(chain)) == 4


def test_the_writer_that_loses_a_number_leaves_its_files_to_the_sweep(chain: Chain) -> None:
    """The zombie gets a transient error; who looks next removes what the winner's manifest does not name, and no more."""
    zombie = reopen(chain)
    add_segment(chain, 2000)
    with pytest.raises(FencedError, match="another writer"):
        add_segment(zombie, 2500, writer=OTHER_WRITER)
    assert issubclass(FencedError, TransientError)
    (removed,) = sweep(reopen(chain)).removed
    assert OTHER_WRITER in removed
    files = chain.lake.store.list(chain.lake.paths.data(chain.incarnation))
    assert [WRITER in key for key in files] == [True]


def test_refresh_sees_what_another_writer_appended(chain: Chain) -> None:
    """Without opening again."""
    other = reopen(chain)
    add_segment(other, 2000)
    add_segment(other, 3000)
    chain.refresh()
    assert (chain.end, chain.next_number) == (Lsn(3000), 3)


def test_a_range_that_does_not_continue_the_chain_is_our_mistake(chain: Chain) -> None:
    """Invariant no-gap."""
    created = "2026-01-01T00:00:00.000000Z"
    ordinal = chain.next_ordinal
    for start, first in ((Lsn(1001), ordinal), (chain.end, ordinal + 1)):
        manifest = Manifest(ManifestKind.PROGRESS, 1, chain.incarnation, first, start, Lsn(2000), "", WRITER, created)
        with pytest.raises(InvariantError, match="does not continue"):
            chain.append(manifest)
    with pytest.raises(InvariantError, match="does not continue"):
        SegmentWriter(chain, WRITER).finish(START)


@pytest.mark.parametrize("number", range(6))
def test_a_missing_link_is_named(chain: Chain, number: int) -> None:
    """A missing newest manifest leaves files that nothing names; the chain then ends earlier."""
    for end in range(2000, 7000, 1000):
        add_segment(chain, end)
    _file(chain, number).unlink()
    if number == 5:
        assert reopen(chain).next_number == 5
        return
    with pytest.raises(LakeError, match=r"missing|6|5 files"):
        reopen(chain)


def test_a_damaged_newest_link_is_noticed_when_opening(chain: Chain) -> None:
    """The newest manifest has no successor to vouch for it, but its own checksum."""
    add_segment(chain, 2000)
    _file(chain, 1).write_bytes(_file(chain, 1).read_bytes().replace(b'"transactions":1', b'"transactions":2'))
    with pytest.raises(LakeError, match=r"00000000000000000001\.json: it is damaged"):
        reopen(chain)


def test_a_link_replaced_by_another_right_one_is_noticed_by_its_successor(chain: Chain, tmp_path: Path) -> None:
    """Checksums go through the whole chain."""
    other = new_chain(tmp_path / "other")
    for each in (chain, other):
        add_segment(each, 2000, writer=WRITER if each is chain else OTHER_WRITER)
        add_segment(each, 3000)
    _file(chain, 1).write_bytes(_file(other, 1).read_bytes())
    with pytest.raises(LakeError, match="checksum"):
        reopen(chain)


def test_ordinals_are_those_of_the_rows_before(chain: Chain) -> None:
    """Room behind the head and behind rows, none behind progress; a link with another one is damage."""
    firsts = [add_segment(chain, end, count=count).first_ordinal for end, count in ((2000, 0), (3000, 2), (4000, 1))]
    assert firsts == [ROOM, ROOM, 2 * ROOM + 2]
    assert reopen(chain).next_ordinal == 3 * ROOM + 3
    _file(chain, 3).write_bytes(replace(chain.newest, first_ordinal=2 * ROOM + 1).to_bytes())
    with pytest.raises(
        LakeError, match=f"first ordinal is {2 * ROOM + 1}, behind its predecessor comes {2 * ROOM + 2}"
    ):
        reopen(chain)


def test_a_manifest_under_another_number_is_refused(chain: Chain) -> None:
    """Names and contents agree."""
    add_segment(chain, 2000)
    _file(chain, 2).write_bytes(_file(chain, 1).read_bytes())
    with pytest.raises(LakeError, match="it says that it is 1"):
        reopen(chain)


@pytest.mark.parametrize("name", ["x.json", "1.json", "00000000000000000002.txt"])
def test_a_foreign_file_among_the_manifests_is_named(chain: Chain, name: str) -> None:
    """A foreign file is an error rather than a guess; nobody begins a new landing because of it."""
    (_file(chain, 0).parent / name).write_bytes(b"")
    with pytest.raises(LakeError, match=f"{name}: it is no manifest; move the file away$"):
        reopen(chain)


def test_no_landing_is_no_incarnation(tmp_path: Path, chain: Chain) -> None:
    """Only a folder with a head counts, and the newest of those."""
    assert newest_incarnation(SourceLake(LocalStore(tmp_path / "empty"), chain.lake.paths)) is None
    (tmp_path / "lake/shop/landing/000007").mkdir()
    assert newest_incarnation(chain.lake) == Incarnation(1)


def test_links_are_found_by_position(chain: Chain) -> None:
    """(start, end] of a range against those of the links."""
    for end in range(2000, 12_000, 1000):
        add_segment(chain, end, count=0)

    def numbers(start: int, end: int) -> list[int]:
        return [m.number for m in chain.between(Lsn(start), Lsn(end))]

    assert numbers(0, 99_000) == list(range(1, 11))
    assert numbers(2000, 3000) == [2]
    assert numbers(1999, 3001) == [1, 2, 3]
    assert numbers(2500, 2600) == [2]
    assert numbers(11_000, 12_000) == []
    assert numbers(1000, 1000) == []


class _CountingStore(LocalStore):
    reads = 0

    def get(self, key: str) -> bytes:
        self.reads += 1
        return super().get(key)


def test_opening_and_searching_read_few_links_of_a_long_chain(chain: Chain) -> None:
    """Work is counted, not time: opening reads the head and the newest few, a position is found by halving."""
    for end in range(2000, 302_000, 1000):
        add_segment(chain, end, count=0)
    store = _CountingStore(Path(chain.lake.url("")))
    opened = Chain.open(SourceLake(store, chain.lake.paths), chain.incarnation)
    assert store.reads == 1 + 1 + MANIFESTS_CHECKED_ON_OPEN
    store.reads = 0
    assert [m.number for m in opened.between(Lsn(150_000), Lsn(151_000))] == [150]
    assert store.reads <= 12


def test_sweeping_removes_only_what_can_never_become_visible(chain: Chain) -> None:
    """A file of the next number may be about to be named by a living writer; an older one nobody can name any more."""
    folder = Path(chain.lake.url(chain.lake.paths.data(chain.incarnation)))
    add_segment(chain, 2000)
    lost, living = (folder / f"{n:020d}-{OTHER_WRITER}-0000.parquet" for n in (1, 2))
    for path in (lost, living):
        path.write_bytes(b"")
    assert [Path(key).name for key in sweep(chain).removed] == [lost.name]
    assert living.exists()
    add_segment(chain, 3000, count=0)
    assert [Path(key).name for key in sweep(chain).removed] == [living.name]
    assert len(list(folder.iterdir())) == 1
    assert verify_chain(chain) == 3
