"""A slot and a landing that do not meet are refused before anything is read, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core.landing_segments import WRITER
from tests.fix_drain import SOURCE, Drained, wait_until
from wal2delta.drain.until import Until
from wal2delta.errors import ConfigError, DefiniteError, GapError, LakeError, SourceError, TransientError
from wal2delta.landing.chain import Chain
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.segment import SegmentWriter
from wal2delta.landing.store import open_store
from wal2delta.lsn import Lsn
from wal2delta.names import Incarnation
from wal2delta.pipeline.drain import drain

pytestmark = pytest.mark.postgres


@pytest.fixture
def begun(drained: Drained) -> Drained:
    """A landing that has begun, with a segment in it and one change waiting."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    drained.begin()
    drained.database.execute("INSERT INTO items VALUES (1)")
    drained.drain()
    drained.database.execute("INSERT INTO items VALUES (2)")
    return drained


def _drop_slot(begun: Drained) -> None:
    begun.database.value("SELECT pg_drop_replication_slot(%s)::text", [begun.slot])


def _make_slot_again(begun: Drained) -> None:
    _drop_slot(begun)
    begun.database.value("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')::text", [begun.slot])


def _advance_slot(begun: Drained) -> None:
    begun.database.value("SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())::text", [begun.slot])


def _other_plugin(begun: Drained) -> None:
    _drop_slot(begun)
    begun.database.value("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')::text", [begun.slot])


def _two_phase(begun: Drained) -> None:
    _drop_slot(begun)
    query = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)::text"
    begun.database.value(query, [begun.slot])


def _drop_publication(begun: Drained) -> None:
    begun.database.execute("DROP PUBLICATION shop")


def _restored_server(begun: Drained) -> None:
    SegmentWriter(begun.chain(), WRITER).finish(Lsn(begun.database.end_of_wal().value + (1 << 30)))


def _head_says(**changes: object) -> Callable[[Drained], None]:
    def change(begun: Drained) -> None:
        head = begun.chain().head
        assert head.source is not None
        values = {name: getattr(head.source, name) for name in head.source.__slots__} | changes
        paths = LakePaths(str(begun.lake), SOURCE)
        for key in open_store(begun.lake).list(paths.landings):
            Path(paths.url(key)).unlink()
        source = type(head.source)(**values)
        Chain.create(open_store(begun.lake), paths, Incarnation(1), start=head.start_lsn, source=source, writer=WRITER)

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (_drop_slot, GapError, "does not exist; the landing ends at"),
        (_make_slot_again, GapError, "the slot was made again or advanced elsewhere"),
        (_advance_slot, GapError, "bytes of WAL between them are lost"),
        (_other_plugin, SourceError, "plugin test_decoding"),
        (_two_phase, SourceError, "two_phase"),
        (_drop_publication, SourceError, "publication shop: it does not exist"),
        (_restored_server, GapError, "restored"),
        (_head_says(system_id="1"), GapError, "the landing belongs to 1"),
        (_head_says(timeline=7), GapError, "timeline"),
        (_head_says(database="other"), LakeError, "belongs to database 'other'"),
        (_head_says(slot="other"), LakeError, "belongs to slot 'other'"),
    ],
)
def test_what_does_not_meet_is_refused(
    begun: Drained, change: Callable[[Drained], None], error: type[DefiniteError], words: str
) -> None:
    """The thing, the reason, the remedy; the chain stays as it was."""
    change(begun)
    end = begun.chain().end
    with pytest.raises(error, match=words) as raised:
        begun.drain()
    assert raised.value.remedy
    assert raised.value.exit_status == 2
    assert begun.chain().end == end


def test_a_landing_that_has_not_begun_says_so(drained: Drained) -> None:
    """Bootstrap comes first."""
    with pytest.raises(LakeError, match="bootstrap"):
        drained.drain()


def test_an_unknown_source_is_a_mistake_of_the_configuration(drained: Drained) -> None:
    """By name."""
    with pytest.raises(ConfigError, match="nowhere"):
        drain(drained.config(), "nowhere", Until.caught_up())


def test_a_damaged_manifest_stops_the_drain(begun: Drained) -> None:
    """Before it talks to the server."""
    chain = begun.chain()
    path = Path(chain.paths.url(chain.paths.manifest(chain.incarnation, chain.newest.number)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LakeError, match="damaged"):
        begun.drain()


def test_a_slot_held_by_something_else_is_to_be_tried_again(begun: Drained) -> None:
    """A holder that never moves the landing is no drain of ours; the error says who it is."""
    process = begun.start_process("stopped", "drain.decoded@hang:30", flush_interval_s=0.1)
    try:
        wait_until(lambda: begun.active_pid() is not None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("wal2delta.pipeline.drain.FOLLOW_PATIENCE_S", 0.5)
            with pytest.raises(TransientError, match=f"in use by process {begun.active_pid()}") as raised:
                drain(begun.config(progress_interval_s=0.1), SOURCE, Until.caught_up())
        assert raised.value.exit_status == 3
    finally:
        process.kill()
        process.communicate()
