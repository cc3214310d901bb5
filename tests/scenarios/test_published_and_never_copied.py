"""A table is published, and no copy of it is made: the slip after `plan | psql`. Whoever looks is shown it.

So is a table whose rows have landed and whose entry waits, a slot that is gone beside its landing, and a lake's path with a
slip in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeproof
from lakeproof.errors import LakeError
from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import write_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import CycleNumber, Incarnation
from lakeproof.proof.record import record
from lakeproof.proof.result import ProofReport, TableProof
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import Place, place_of

pytestmark = pytest.mark.postgres


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A place with one table that is not published yet."""
    return place_of(database, tmp_path, monkeypatch, capsys)


def begun(place: Place) -> None:
    """Publish and copy."""
    assert place.run("apply")[0] == 0
    assert place.run("bootstrap")[0] == 0
    assert place.run("status")[0] == 0


@pytest.mark.parametrize("is_configured", [True, False])
def test_a_table_that_is_published_and_never_copied_is_named(place: Place, is_configured: bool) -> None:
    """`status`, `check` and `plan` name it, with the remedy, and the first two end with 1; a copy ends that."""
    begun(place)
    if is_configured:
        place.configure("tables: [public.items, public.notes]")
    place.database.execute(
        "CREATE TABLE notes (id int PRIMARY KEY, v text)",
        "INSERT INTO notes VALUES (1, 'before it was published')",
        f"ALTER PUBLICATION {place.database.name} ADD TABLE notes",
        "UPDATE notes SET v = 'since' WHERE id = 1",
    )
    assert place.run("drain", "--once")[0] == 0
    reason = "it is published and not in the lake, since no copy of it was made"
    remedy = "run `lakeproof bootstrap shop --tables public.notes`"
    status, lacking = place.lacking()
    assert (status, list(lacking["absent"])) == (1, ["public.notes"])
    for command, expected in (("status", 1), ("check", 1), ("plan", 0)):
        status, text = place.run(command)
        assert (status, reason in text, remedy in text) == (expected, True, True), (command, text)
    assert place.run("bootstrap", "--tables", "public.notes")[0] == 0
    assert place.lacking()[1]["absent"] == {}
    assert [place.run(command)[0] for command in ("status", "check", "plan")] == [0, 0, 0]


def test_a_slot_that_is_gone_beside_its_landing_is_an_error(place: Place) -> None:
    """After `teardown` and a new publication `check` and `status` name `recover`, which works; nothing is called ready."""
    assert "it does not exist yet; `lakeproof bootstrap` makes it" in place.run("check")[1]
    begun(place)
    assert place.run("teardown", "--yes")[0] == 0
    assert place.run("apply")[0] == 0
    for command in ("check", "status"):
        status, text = place.run(command)
        assert status == 2, text
        assert "it does not exist; the landing ends at" in text
        assert "run `lakeproof recover`" in text
        assert ", ready" not in text
    assert place.run("recover")[0] == 0
    assert place.run("check")[0] == 0


def test_a_lake_that_is_nowhere_is_an_error_of_its_path(place: Place, tmp_path: Path) -> None:
    """Reading, and the commands that need a landing, name the place; those that may come first do not refuse it."""
    with pytest.raises(LakeError, match=r"lakee: there is no lake in this place; correct its path"):
        lakeproof.read(tmp_path / "lakee")
    for command in (("compact", "shop"), ("drain", "shop", "--once"), ("prove", "shop")):
        status, text = place.run(*command)
        assert status == 2
        assert (
            "there is no lake in this place; correct `lake` of the configuration, or run `lakeproof bootstrap" in text
        )
    assert place.run("apply")[0] == 0
    assert place.run("status")[0] == 0


def _cut(place: Place) -> None:
    """Put a cut at the landing's end, as a compaction would that has the first table and nothing else."""
    lake = SourceLake.open(str(place.file.parent / "lake"), "shop")
    chain, copies = Chain.open(lake, Incarnation(1)), pending_snapshots(lake, Incarnation(1), None)
    tables = {
        t: CutTable(chain.end, copy.consistent_point, 0, 0, copy.table.version, Incarnation(1), Incarnation(1))
        for t, copy in copies.items()
    }
    document = Cut(
        number=CycleNumber(1),
        kind=CycleKind.APPLY,
        incarnation=Incarnation(1),
        position=chain.end,
        commit_time=None,
        tables=tables,
        next_segment=chain.next_number,
        intent_sha256="0" * 64,
        created_at=now_text(),
        held={},
    )
    write_cut(lake, document)
    record(lake, Incarnation(1), ProofReport("shop", chain.end, {t: TableProof("equal", 1, 1) for t in tables}))


def test_landed_rows_whose_table_waits_for_the_catalog_are_named_with_status_1(place: Place) -> None:
    """By `compact`, which has nothing to do, and `status`; a copy is not made of it, and the next drain lets it in."""
    place.database.execute(f"CREATE PUBLICATION {place.database.name} FOR ALL TABLES")
    place.configure()
    assert place.run("bootstrap")[0] == 0
    place.database.execute(
        "CREATE TABLE another (id int PRIMARY KEY, v text)",
        "ALTER TABLE another RENAME TO fresh",
        "INSERT INTO fresh VALUES (1, 'a')",
    )
    end = place.database.value("SELECT pg_current_wal_lsn()::text")
    # Log that no stream has: the catalog is read past the table's rows.
    place.database.execute("SELECT pg_create_restore_point('p') FROM generate_series(1, 200)")
    assert place.run("drain", "--until-lsn", end)[0] == 0
    _cut(place)
    words = "its rows come from the stream, and it waits until the landing has passed"
    for command, expected in ((("compact",), 1), (("status",), 1), (("bootstrap", "--held"), 0)):
        status, text = place.run(*command)
        assert (status, words in text, "run `lakeproof drain shop --once`" in text) == (expected, True, True), text

    def is_let_in() -> bool:
        # The server may take half a minute for what no commit waits for.
        place.database.flush_wal()
        status, _ = place.run("drain", "--once")
        return status == 0 and "waiting    public.fresh: the next compaction" in place.run("status")[1]

    wait_until(is_let_in)
    assert place.run("status")[0] == 0
