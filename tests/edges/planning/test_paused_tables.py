"""What outlives a pause and what ends it: the plan of a cycle, and the commands' record. No Spark is needed.

That a paused table's lake stands still and comes back equal is in tests/scenarios/test_table_is_paused.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.catalog.differences import Difference
from lakeproof.catalog.fingerprint import Fingerprint, TableFacts
from lakeproof.cli.status_page import page
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.publish import apply, pause, plan, resume
from lakeproof.commands.status import status
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError, SourceError, TransientError
from lakeproof.events import silent
from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.planning.next_incarnation import plan_switch
from lakeproof.lake.planning.set_aside import left_behind, paused_among
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import Held, HeldCause, WayOut, describe_held
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.snapshot.paused import PausedTable, add_paused, read_paused, set_resuming
from lakeproof.storage.source_lake import SourceLake
from tests.edges.planning.plan_steps import ONE, A, B, cut_of, insert, planned
from tests.support.lake.simulated_source import SimulatedSource, two_tables
from tests.support.servers.fix_postgres import Database

BIG, SMALL = TableName("public", "big"), TableName("public", "small")


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """Two tables, snapshotted at the chain's head."""
    return two_tables(tmp_path)


def _landed(source: SimulatedSource) -> Lsn:
    end = insert(source, "a", "b")
    source.flush()
    return end


def _left(source: SimulatedSource) -> Cut:
    """The cut behind the reading in which A is not published any more."""
    _landed(source)
    cut = cut_of(source, planned(source, None))
    since = source.chain.end
    source.notice("a", Difference.LEFT, since, _landed(source))
    return cut_of(source, planned(source, cut), CycleNumber(2), cut)


def _published_again(source: SimulatedSource) -> None:
    version = source.table("a").version
    facts = TableFacts(version.oid, A, "r", "d", "[]", 1, "[]", "[]", "[]", 2)
    since = source.chain.end
    source.notice(
        "a", Difference.ENTERED, since, _landed(source), fingerprint=Fingerprint({version.oid: facts}, {}, {})
    )


def test_a_table_that_is_published_again_is_paused_no_more(source: SimulatedSource) -> None:
    """Somebody waits for it at once; `resume` is the way out until it has begun, then a copy, which needs nobody."""
    add_paused(source.lake, {A: PausedTable("today", ())})
    cut = _left(source)
    assert (cut.held[A].cause, cut.held[A].way_out) == (HeldCause.PAUSED, WayOut.RESUME)
    assert paused_among(cut.held, source.chain) == {A}
    _published_again(source)
    assert paused_among(cut.held, source.chain) == set()
    again = planned(source, cut)
    assert (again.held[A].cause, again.held[A].way_out) == (HeldCause.CATALOG, WayOut.RESUME)
    assert again.held[A].at_lsn == cut.held[A].at_lsn
    set_resuming(source.lake, [A])
    assert planned(source, cut).held[A].way_out is WayOut.SNAPSHOT
    cut = cut_of(source, again, CycleNumber(3), cut)
    _landed(source)
    assert planned(source, cut).held[A].way_out is WayOut.SNAPSHOT


def test_a_table_that_is_to_be_resumed_is_not_called_paused(source: SimulatedSource) -> None:
    """A `resume` that was killed before it published the table leaves one that somebody waits for, and goes on with it."""
    add_paused(source.lake, {A: PausedTable("today", ())})
    set_resuming(source.lake, [A])
    held = _left(source).held[A]
    assert (held.cause, held.way_out) == (HeldCause.CATALOG, WayOut.RESUME)
    assert "lakeproof resume shop --tables app.a" in describe_held(held, "shop", A).remedy


def test_without_configured_tables_each_that_leaves_is_waited_for(source: SimulatedSource, database: Database) -> None:
    """The configuration asks for whatever is published; one that names tables asks for these."""
    held = _left(source).held
    assert left_behind(database.source(), held, source.chain) == set()
    assert left_behind(database.source(tables=[B]), held, source.chain) == {A}
    assert left_behind(database.source(tables=[A]), held, source.chain) == set()


@pytest.mark.parametrize("by_a_person", [False, True])
def test_another_incarnation_expects_no_copy_of_what_is_out_of_the_publication(
    source: SimulatedSource, *, by_a_person: bool
) -> None:
    """After `recover`, a paused table is a paused one, and a left one has left; a held one waits for its copy."""
    _landed(source)
    cut = cut_of(source, planned(source, None))
    cause, way_out = (
        (HeldCause.PAUSED, WayOut.RESUME) if by_a_person else (HeldCause.CATALOG, WayOut.PUBLISH_THEN_SNAPSHOT)
    )
    out = Held(cut.position, cause, way_out, {"since": "today"}, (Difference.LEFT,))
    other = Held(cut.position, HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)
    source.snapshot(["b"])
    pending = {B: pending_snapshots(source.lake, ONE, None)[B]}
    switched = {h.cause: plan_switch(source.chain, replace(cut, held={A: h}), pending) for h in (out, other)}
    kept, waits = switched[cause], switched[HeldCause.KEY_NOT_UNIQUE]
    assert kept is not None
    assert waits is not None
    assert kept.held[A] == out
    assert waits.held[A].cause is HeldCause.NEXT_INCARNATION


def test_two_commands_do_not_write_the_record_at_once(source: SimulatedSource) -> None:
    """The second one is refused before it has read what the first is about to replace."""
    lake = source.lake
    with lake.store.lock(lake.paths.paused_lock, "x", "x"), pytest.raises(TransientError, match="another command"):
        add_paused(lake, {A: PausedTable("today", ())})
    add_paused(lake, {A: PausedTable("today", ())})
    assert set(read_paused(lake)) == {A}


@pytest.fixture
def config(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two tables, published and copied."""
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    database.execute(
        "CREATE TABLE big (id int PRIMARY KEY, v int, w int)",
        "CREATE TABLE small (id int PRIMARY KEY, v int)",
        "INSERT INTO big SELECT i, i FROM generate_series(1, 50) i",
    )
    config = _config(database, tmp_path)
    apply(config, "shop", plan(config, "shop"))
    bootstrap(config, "shop")
    return config


def _config(database: Database, folder: Path, more: str = "") -> Config:
    file = folder / "lakeproof.yaml"
    file.write_text(
        f"lake: {folder}/lake\nsources:\n  shop:\n    dsn: {{env: SHOP_DSN}}\n    publication: pub\n"
        f"    slot: {database.name}\n    buckets: 16\n    tables: [public.big, public.small]\n{more}"
    )
    return load(file)


def test_a_paused_table_is_copied_by_resume_alone(database: Database, config: Config) -> None:
    """A copy of it, published by hand, would be followed until the next `apply` takes it out again."""
    lake = SourceLake.open(config.location, "shop")
    pause(config, "shop", [BIG], silent)
    report = status(config)
    assert report.sources["shop"].pausing == (BIG,)
    assert "paused     public.big: recorded as paused" in page(report)
    database.execute("ALTER PUBLICATION pub ADD TABLE big")
    with pytest.raises(ConfigError, match=r"table public\.big: it is paused; .*resume shop --tables public\.big"):
        bootstrap(config, "shop", [BIG])
    assert set(bootstrap(config, "shop", again=True).tables) == {SMALL}
    assert set(resume(config, "shop", [BIG], silent).tables) == {BIG}
    assert read_paused(lake) == {}
    assert status(config).sources["shop"].pausing == ()


def test_what_a_killed_resume_has_left_is_paused_anew_or_copied(config: Config) -> None:
    """Its record alone names it as coming back; each table that is copied then is done, whatever becomes of others."""
    lake = SourceLake.open(config.location, "shop")
    pause(config, "shop", [BIG, SMALL], silent)
    set_resuming(lake, [BIG, SMALL])
    pause(config, "shop", [BIG], silent)
    assert {t: entry.resuming for t, entry in read_paused(lake).items()} == {BIG: False, SMALL: True}
    assert plan(config, "shop").added == (SMALL,)
    set_resuming(lake, [BIG])
    apply(config, "shop", plan(config, "shop"))
    bootstrap(config, "shop", [SMALL])
    assert set(read_paused(lake)) == {BIG}
    assert set(resume(config, "shop", None, silent).tables) == {BIG}
    assert read_paused(lake) == {}


@pytest.mark.since(15)
@pytest.mark.parametrize(
    ("part", "reason"),
    [("(id, v)", "it has no column v that can be published"), ("WHERE (v > 5)", 'column "v" does not exist')],
)
def test_a_part_that_the_migration_has_outdated_is_named_with_the_way_out(
    database: Database, config: Config, tmp_path: Path, part: str, reason: str
) -> None:
    """The table stays out until the configuration says what is to be published of it."""
    database.execute(
        "ALTER TABLE big REPLICA IDENTITY FULL" if "WHERE" in part else "SELECT 1",
        "ALTER PUBLICATION pub DROP TABLE big",
        f"ALTER PUBLICATION pub ADD TABLE big {part}",
    )
    pause(config, "shop", [BIG], silent)
    database.execute("ALTER TABLE big RENAME v TO amount")
    with pytest.raises(SourceError) as refusal:
        resume(config, "shop", [BIG], silent)
    assert reason in str(refusal.value)
    assert "in the configuration" in str(refusal.value)
    other = _config(database, tmp_path, "    table:\n      public.big: {rows: 'true'}\n")
    assert set(resume(other, "shop", [BIG], silent).tables) == {BIG}
