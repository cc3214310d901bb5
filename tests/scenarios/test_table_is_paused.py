"""A table is paused for a mass migration and resumed: its changes do not land meanwhile, the others go on, both end equal.

Each command is killed at each of its steps and run again. A table that the configuration does not name any more is left
behind: shown, and neither proven nor counted as held.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.cli.status_page import page
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.commands.publish import apply, pause, plan, resume
from lakeproof.commands.status import status
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.errors import ConfigError, SourceError
from lakeproof.events import silent
from lakeproof.failpoints import VARIABLE
from lakeproof.lake.records.held import HeldCause
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.snapshot.paused import read_paused
from lakeproof.state.due_copies import recopy
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from resources import Settings
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
BIG, SMALL = TableName("public", "big"), TableName("public", "small")


def _config(database: Database, folder: Path, tables: str = "public.big, public.small") -> Config:
    file = folder / "lakeproof.yaml"
    file.write_text(
        f"lake: {folder}/lake\nsources:\n  shop:\n    dsn: {{env: SHOP_DSN}}\n    publication: pub\n"
        f"    slot: {database.name}\n    buckets: 16\n    tables: [{tables}]\n"
    )
    return load(file)


@pytest.fixture
def config(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two tables, published and copied."""
    monkeypatch.setenv("SHOP_DSN", database.dsn)
    database.execute(
        "CREATE TABLE big (id int PRIMARY KEY, v int)",
        "CREATE TABLE small (id int PRIMARY KEY, v int)",
        "INSERT INTO big SELECT i, i FROM generate_series(1, 500) i",
        "INSERT INTO small SELECT i, i FROM generate_series(1, 20) i",
    )
    config = _config(database, tmp_path)
    apply(config, "shop", plan(config, "shop"))
    bootstrap(config, "shop")
    return config


def _killed(config: Config, command: str, place: str) -> None:
    """Run a command that is killed at a place."""
    done = subprocess.run(
        [sys.executable, "-m", "lakeproof", "-c", str(config.path), command, "shop", "--tables", "public.big"],
        env={**os.environ, VARIABLE: place},
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == -9, done.stderr


def _proven(config: Config, spark: SparkSession) -> dict[str, str]:
    return {
        t.name: proof.status for t, proof in prove(config, "shop", None, spark, request=TABLES_ALONE).tables.items()
    }


def _published(database: Database) -> set[str]:
    return {name for (name,) in database.rows("SELECT tablename FROM pg_publication_tables WHERE pubname = 'pub'")}


@pytest.mark.full
def test_a_paused_table_stands_still_and_comes_back_equal(
    database: Database, config: Config, spark: SparkSession
) -> None:
    """The migration is not sent; `status`, Dagster and a proof name it as paused, and none of them as an error."""
    lake = SourceLake.open(config.location, "shop")
    assert _proven(config, spark) == {"big": "equal", "small": "equal"}
    _killed(config, "pause", "pause.after_record")
    assert _published(database) == {"big", "small"}
    assert any("paused: public.big" in note for note in plan(config, "shop").notes)
    assert [str(s) for s in pause(config, "shop", [BIG], silent).statements] == [
        'ALTER PUBLICATION "pub" DROP TABLE ONLY "public"."big"'
    ]
    assert plan(config, "shop").empty
    before = Chain.open_newest(lake)
    assert before is not None
    position = before.end
    database.execute("UPDATE big SET v = v + 1", "UPDATE small SET v = v + 1", "INSERT INTO big VALUES (501, 0)")
    assert _proven(config, spark) == {"big": "not applicable", "small": "equal"}
    chain, cut = Chain.open_newest(lake), newest_cut(lake)
    assert chain is not None
    assert cut is not None
    landed = [file.table for manifest in chain.between(position, chain.end) for file in manifest.files]
    assert set(landed) == {SMALL}
    assert cut.held[BIG].cause is HeldCause.PAUSED
    assert cut.held[BIG].at_lsn < cut.position
    report = status(config)
    assert not report.differs
    assert report.sources["shop"].paused == {BIG}
    assert report.sources["shop"].unpublished == ()
    assert "paused     public.big: held since" in page(report)
    assert "run `lakeproof resume shop --tables public.big`" in page(report)
    assert Settings(config_path=str(config.path)).held_tables("shop") == {}
    # Nothing copies it without being asked, nor with all others.
    assert not recopy(config, "shop", time_of(cut.created_at)).due
    assert set(bootstrap(config, "shop", again=True).tables) == {SMALL}

    _killed(config, "resume", "resume.after_record")
    _killed(config, "resume", "resume.after_publish")
    assert _published(database) == {"big", "small"}
    database.execute("UPDATE big SET v = -1 WHERE id < 10")
    _killed(config, "resume", "resume.after_copy")
    assert set(resume(config, "shop", None, silent).tables) == {BIG}
    assert read_paused(lake) == {}
    database.execute("DELETE FROM big WHERE id = 7")
    assert _proven(config, spark) == {"big": "equal", "small": "equal"}
    assert plan(config, "shop").empty
    with pytest.raises(ConfigError, match="no table of it is paused"):
        resume(config, "shop", None, silent)


@pytest.mark.full
def test_a_table_taken_out_is_left_as_it_is(
    database: Database, config: Config, spark: SparkSession, tmp_path: Path
) -> None:
    """Its last state stays in the lake; nobody proves it, and nobody waits for it. Named again, it is copied again."""
    into_the_lake(config, spark)
    other = _config(database, tmp_path, "public.small")
    planned = plan(other, "shop")
    assert planned.statements == ('ALTER PUBLICATION "pub" DROP TABLE ONLY "public"."big"',)
    assert any("taken out" in note and "public.big" in note for note in planned.notes)
    apply(other, "shop", planned)
    database.execute("UPDATE big SET v = 0", "UPDATE small SET v = 0")
    assert _proven(other, spark) == {"big": "not applicable", "small": "equal"}
    report = status(other)
    assert not report.differs
    assert report.sources["shop"].left_behind == {BIG}
    assert "left       public.big" in page(report)
    assert Settings(config_path=str(other.path)).held_tables("shop") == {}
    config = _config(database, tmp_path)
    assert status(config).differs
    apply(config, "shop", plan(config, "shop"))
    bootstrap(config, "shop", [BIG])
    assert _proven(config, spark) == {"big": "equal", "small": "equal"}


@pytest.mark.since(15)
def test_what_is_published_with_all_others_can_not_be_paused_alone(database: Database, config: Config) -> None:
    """A publication of a schema, or of all tables, leaves none out; a table that is not published is named."""
    with pytest.raises(ConfigError, match=r"did you mean public\.big"):
        pause(config, "shop", [TableName("public", "bigg")], silent)
    database.execute("DROP PUBLICATION pub", "CREATE PUBLICATION pub FOR TABLES IN SCHEMA public")
    with pytest.raises(SourceError, match="with all tables of its database or schema"):
        pause(config, "shop", [BIG], silent)
    with pytest.raises(ConfigError, match=r"publication pub does not have it; did you mean public\.big"):
        pause(config, "shop", [TableName("public", "bigg")], silent)
    assert read_paused(SourceLake.open(config.location, "shop")) == {}
