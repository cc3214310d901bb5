"""The position that the sources of a group are brought to, from landings and cuts alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.planning.group_position import group_position
from lakeproof.lake.records.store import newest_number, write_cut
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource, Manifest, ManifestKind
from lakeproof.landing.timelines import Followed, Switch, record_followed
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation
from lakeproof.storage.source_lake import SourceLake
from tests.core.lake.lake_document_samples import CUT

SERVER = ChainSource("7300000000000000001", 1, "app", 16384, "slot", "pub", 180000)
WRITER = "0" * 32
LATE = "2999-01-01T00:00:00.000000Z"


@dataclass
class Group:
    """The lakes of two sources, each with a landing that begins at 100."""

    folder: Path

    def landing(
        self, name: str, end: int, source: ChainSource = SERVER, incarnation: int = 1, *, written_at: str = LATE
    ) -> SourceLake:
        """Make a landing up to `end`, its last manifest written at `written_at`."""
        lake = SourceLake.open(str(self.folder), name)
        chain = Chain.create(lake, Incarnation(incarnation), NewHead(Lsn(100), source, WRITER))
        if end > 100:
            self.progress(chain, end, written_at)
        return lake

    @staticmethod
    def progress(chain: Chain, end: int, written_at: str = LATE) -> None:
        """Move the landing's end on."""
        number, ordinal = chain.next_number, chain.next_ordinal
        span = (chain.end, Lsn(end))
        chain.append(
            Manifest(ManifestKind.PROGRESS, number, chain.incarnation, ordinal, *span, None, WRITER, written_at)
        )

    def cut(self, lake: SourceLake, position: int, incarnation: int = 1) -> SourceLake:
        """Put a cut of the source."""
        number = CycleNumber(newest_number(lake.store, lake.paths.cuts) + 1)
        life = Incarnation(incarnation)
        write_cut(lake, replace(CUT, number=number, position=Lsn(position), incarnation=life, tables={}, held={}))
        return lake


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """A group in an empty lake."""
    return Group(tmp_path)


def test_the_position_is_the_least_end(group: Group) -> None:
    """The slowest landing gives it."""
    lakes = [group.cut(group.landing("one", 500), 200), group.cut(group.landing("two", 300), 300)]
    place = group_position("shop", lakes)
    assert (place.position, place.slowest, place.timeline) == (Lsn(300), "two", 1)


def test_a_source_beyond_the_least_end_is_waited_for(group: Group) -> None:
    """The reason names both, and the remedy the drain that is behind."""
    lakes = [group.cut(group.landing("one", 500), 400), group.cut(group.landing("two", 300), 200)]
    with pytest.raises(
        TransientError, match=r"two has landed up to 0/12C, and one can't be read before 0/190"
    ) as error:
        group_position("shop", lakes)
    assert "the drain of two" in error.value.remedy


@pytest.mark.parametrize("other", [replace(SERVER, system_id="7300000000000000002"), replace(SERVER, database_oid=5)])
def test_sources_of_two_databases_are_refused(group: Group, other: ChainSource) -> None:
    """A position of one server says nothing of another, nor a transaction of one database."""
    lakes = [group.cut(group.landing("one", 300), 200), group.cut(group.landing("two", 300, other), 200)]
    with pytest.raises(LakeError, match="its sources are not of one database"):
        group_position("shop", lakes)


def test_a_database_may_be_renamed(group: Group) -> None:
    """Its OID counts; slots and publications differ anyway."""
    other = replace(SERVER, database="renamed", slot="other", publication="other")
    lakes = [group.cut(group.landing("one", 300), 200), group.cut(group.landing("two", 300, other), 200)]
    assert group_position("shop", lakes).position == Lsn(300)


@pytest.mark.parametrize(
    ("one", "two", "timeline"),
    [
        ([(1, 250)], [(1, 250)], 2),
        # Both were on timeline 1 at 300.
        ([(1, 350)], None, 1),
        ([(1, 300)], None, 1),
        ([(1, 250)], None, None),
        # Two standbys, promoted at different positions.
        ([(1, 250)], [(1, 240)], None),
        ([(1, 250), (2, 280)], [(1, 250)], None),
        ([(1, 250), (2, 400)], [(1, 250)], 2),
    ],
)
def test_all_sources_were_on_one_timeline_at_the_position(
    group: Group, one: list[tuple[int, int]], two: list[tuple[int, int]] | None, timeline: int | None
) -> None:
    """What comes after the position does not matter."""
    lakes = [group.cut(group.landing("one", 500), 200), group.cut(group.landing("two", 300), 200)]
    for lake, switches in zip(lakes, (one, two), strict=True):
        if switches is not None:
            listed = tuple(Switch(number, Lsn(position)) for number, position in switches)
            record_followed(Chain.open(lake, Incarnation(1)), Followed(len(switches) + 1, listed))
    if timeline is None:
        with pytest.raises(LakeError, match="on different timelines of the server"):
            group_position("shop", lakes)
    else:
        assert group_position("shop", lakes).timeline == timeline


def test_a_source_without_a_landing_or_a_copy_is_named(group: Group) -> None:
    """The first is an error, the second passes."""
    one = group.cut(group.landing("one", 300), 200)
    with pytest.raises(LakeError, match="run `lakeproof bootstrap two` first"):
        group_position("shop", [one, SourceLake.open(str(group.folder), "two")])
    two = group.landing("two", 300)
    with pytest.raises(TransientError, match="two: incarnation 1: it has begun, and the copy"):
        group_position("shop", [one, two])


def test_another_incarnation_is_waited_for(group: Group) -> None:
    """Until its copy has entered, and until each other source has landed something since."""
    stale = "2020-01-01T00:00:00.000000Z"
    one = group.cut(group.landing("one", 300, written_at=stale), 200)
    two = group.cut(group.landing("two", 300), 200)
    group.landing("two", 350, incarnation=2)
    with pytest.raises(TransientError, match="two: incarnation 2: it has begun, and the copy"):
        group_position("shop", [one, two])
    group.cut(two, 150, incarnation=2)
    with pytest.raises(TransientError, match="one has landed nothing since"):
        group_position("shop", [one, two])
    chain = Chain.open(one, Incarnation(1))
    group.progress(chain, 301)
    place = group_position("shop", [one, two])
    assert (place.position, place.incarnations) == (Lsn(301), {"one": 1, "two": 2})
