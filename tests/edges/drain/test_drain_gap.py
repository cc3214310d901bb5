"""A slot and a landing that do not meet are refused before anything is read, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from typing_extensions import LiteralString

from lakeproof.commands.drain import drain
from lakeproof.drain.until import Until
from lakeproof.errors import ConfigError, DefiniteError, GapError, LakeError, SourceError, TransientError
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.postgres.replication_slot import SlotState, slot_problem
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from tests.core.landing.landing_segments import WRITER
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until

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
    begun.database.drop_slot(begun.slot)


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
        lake = SourceLake.open(str(begun.lake), SOURCE)
        for key in open_store(begun.lake).list(lake.paths.landings):
            Path(lake.url(key)).unlink()
        source = type(head.source)(**values)
        Chain.create(lake, Incarnation(1), NewHead(head.start_lsn, source, WRITER))

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (_drop_slot, GapError, "does not exist; the landing ends at"),
        (_make_slot_again, GapError, "the slot was recreated or advanced elsewhere"),
        (_advance_slot, GapError, "bytes of WAL between them are lost"),
        (_other_plugin, SourceError, "plugin test_decoding"),
        (_two_phase, SourceError, "two_phase"),
        (_drop_publication, SourceError, "publication shop: it does not exist"),
        (_restored_server, GapError, "restored"),
        (_head_says(system_id="1"), GapError, "the landing belongs to 1"),
        (_head_says(timeline=7), GapError, "timeline"),
        (_head_says(database="old", database_oid=1), LakeError, r"belongs to database 'old' \(OID 1\)"),
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


@contextmanager
def _setting(begun: Drained, name: str, value: str) -> Iterator[None]:
    """A setting of the run's server for as long as the block lasts."""
    begun.database.execute(SQL("ALTER SYSTEM SET {} = {}").format(Identifier(name), value), "SELECT pg_reload_conf()")
    try:
        wait_until(lambda: begun.database.value("SELECT setting FROM pg_settings WHERE name = %s", [name]) != "-1")
        yield
    finally:
        begun.database.execute(SQL("ALTER SYSTEM RESET {}").format(Identifier(name)), "SELECT pg_reload_conf()")


def _is_lost(begun: Drained) -> bool:
    """Let the server look at its slots; true if it has given this one up."""
    begun.database.execute("CHECKPOINT")
    query: LiteralString = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
    return str(begun.database.value(query, [begun.slot])) == "lost"


def _refused(begun: Drained, words: str) -> None:
    end = begun.chain().end
    with pytest.raises(GapError, match=words) as raised:
        begun.drain()
    assert raised.value.thing == f"slot {begun.slot}"
    assert str(end) in raised.value.reason
    assert "recover" in raised.value.remedy
    assert begun.chain().end == end


def test_a_slot_that_held_back_too_much_wal_is_lost(begun: Drained) -> None:
    """max_slot_wal_keep_size: the cause, the gap and the repair."""
    with _setting(begun, "max_slot_wal_keep_size", "1MB"):
        for _ in range(4):
            begun.database.execute("SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()")
        wait_until(lambda: _is_lost(begun))
        _refused(begun, r"invalidated it \(wal_removed: it held back more WAL than max_slot_wal_keep_size")


@pytest.mark.since(18)
def test_a_slot_that_was_idle_for_too_long_is_lost(begun: Drained) -> None:
    """idle_replication_slot_timeout: the same, with its own cause."""
    with _setting(begun, "idle_replication_slot_timeout", "1s"):
        wait_until(lambda: _is_lost(begun))
        _refused(begun, r"invalidated it \(idle_timeout: nobody read it for as long as")


def test_causes_that_only_a_standby_has_are_described_in_words() -> None:
    """rows_removed and wal_level_insufficient come from a primary; on ours there is no making them."""
    state = SlotState("s", "pgoutput", "logical", "app", *(False,) * 3, None, None, None, "lost", None, "", None, None)
    for cause, words in (("rows_removed", "catalog"), ("wal_level_insufficient", "wal_level was lowered")):
        problem = slot_problem(replace(state, invalidation_reason=cause), "app")
        assert problem is not None
        assert f"({cause}: " in problem.reason
        assert words in problem.reason


def test_a_landing_that_has_not_begun_says_so(drained: Drained) -> None:
    """Bootstrap comes first."""
    with pytest.raises(LakeError, match="bootstrap"):
        drained.drain()


def test_an_unknown_source_is_a_mistake_of_the_configuration(drained: Drained) -> None:
    """The error has the source's name."""
    with pytest.raises(ConfigError, match="nowhere"):
        drain(drained.config(), "nowhere", Until.caught_up())


def test_a_damaged_manifest_stops_the_drain(begun: Drained) -> None:
    """The drain stops before it talks to the server."""
    chain = begun.chain()
    path = Path(chain.lake.url(chain.lake.paths.manifest(chain.incarnation, chain.newest.number)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LakeError, match="damaged"):
        begun.drain()


def test_a_slot_held_by_something_else_is_to_be_tried_again(begun: Drained, tmp_path: Path) -> None:
    """A holder that never moves the landing is no drain of ours; the error says who it is."""
    process = begun.start_process("stopped", f"drain.decoded@hold:{tmp_path / 'here'}", flush_interval_s=0.1)
    try:
        wait_until(lambda: begun.active_pid() is not None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lakeproof.drain.supervisor.FOLLOW_TIMEOUT_S", 0.5)  # inside: a minute's wait
            with pytest.raises(TransientError, match=f"in use by process {begun.active_pid()}") as raised:
                drain(begun.config(progress_interval_s=0.1), SOURCE, Until.caught_up())
        assert raised.value.exit_status == 3
    finally:
        process.kill()
        process.communicate()
