"""Schemas in the likeness of real applications, changed at random beside a drain: every table of the lake is the source's.

`LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.spark_on_demand import SparkOnDemand
from tests.applications.alterations import NEEDS_SPARK, Alterations
from tests.applications.application import Application
from tests.applications.billing import BILLING
from tests.applications.migrated import Migrated
from tests.applications.music import MUSIC
from tests.applications.shop import SHOP
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_HELD_MAX = 0.1


@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.full)])
def test_a_shop_is_in_the_lake_as_it_is(database: Database, tmp_path: Path, rounds: int) -> None:
    """Rows alone, of every kind of type, key and partition."""
    application = Application(database, tmp_path, SEED)
    with application.begun(SHOP, 200):
        for _ in range(rounds):
            application.mutator.ticks(150)
            application.compact()
            application.mutator.ticks(150)
            assert application.settle() == set(), f"seed {SEED}: {application.held}"


@pytest.mark.full
def test_a_shop_that_is_altered_is_in_the_lake_as_it_is(database: Database, tmp_path: Path) -> None:
    """DDL between the rows, and a cycle before each: what needs no copy is followed in place, and the rest is held."""
    application = Application(database, tmp_path, SEED)
    with application.begun(SHOP, 200):
        altered(application, Alterations(application.mutator, SEED, NEEDS_SPARK), rounds=12, times=4)


@pytest.mark.full
@pytest.mark.spark
def test_what_is_held_comes_back_with_a_copy(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """DDL of every kind, at any time; a copy is enough for whatever is held."""
    application = Application(database, tmp_path, SEED, SparkOnDemand.of(spark))
    with application.begun(SHOP, 200):
        altered(application, Alterations(application.mutator, SEED), rounds=8, times=5)


@pytest.mark.full
@pytest.mark.parametrize(("name", "statements"), [("billing", BILLING), ("music", MUSIC)])
def test_hundreds_of_tables_are_in_the_lake_as_they_are(
    database: Database, tmp_path: Path, name: str, statements: tuple[str, ...]
) -> None:
    """Rows in all tables of a large schema, then DDL among them."""
    application = Application(database, tmp_path, SEED)
    with application.begun(statements, 4 * len(statements)):
        for _ in range(4):
            application.mutator.ticks(3 * len(statements))
            application.compact()
            application.mutator.ticks(len(statements))
            assert application.settle() == set(), f"seed {SEED}, {name}: {application.held}"
        altered(application, Alterations(application.mutator, SEED, NEEDS_SPARK), rounds=4, times=6)


@pytest.mark.full
@pytest.mark.spark
def test_an_application_s_migrations_are_followed(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """Migrations from zero, with rows in some tables, renames and backfills; few tables wait for a copy."""
    application = Application(database, tmp_path, SEED, SparkOnDemand.of(spark))
    with application.begun(["CREATE TABLE of_before (id int PRIMARY KEY, v text)"], 1):
        migrated = Migrated(application.mutator, SEED, tables=60)
        for _ in migrated.run():
            if migrated.chance.random() < 0.2:
                application.mutator.let_read()
                application.compact()
        waiting = application.settle()
        existing = {t.name for t in application.mutator.tables}
        assert len(waiting) < _HELD_MAX * len(existing), {t: application.held.get(t) for t in waiting}


@pytest.mark.full
@pytest.mark.slow
def test_cycles_of_a_second_that_are_killed_lose_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction of 140 tables is killed at any moment, and begun again."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    application = Application(database, tmp_path, SEED)
    chance = random.Random(SEED)
    with application.begun(BILLING, 400):
        path = write_source(tmp_path, database, "", publication="shop")
        for _ in range(8):
            command = [sys.executable, "-m", "lakeproof", "-c", str(path), "compact", "--follow", "--no-views"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                try:
                    end = time.monotonic() + chance.uniform(2, 8)
                    while time.monotonic() < end:
                        application.mutator.ticks(20)
                    ended = process.poll()
                finally:
                    process.kill()
                assert ended is None, process.stderr and process.stderr.read()
            if chance.random() < 0.4:
                assert application.settle() == set(), f"seed {SEED}: {application.held}"
        assert application.settle() == set(), f"seed {SEED}: {application.held}"


def altered(application: Application, alterations: Alterations, rounds: int, times: int, ticks: int = 60) -> None:
    """Change rows and tables in rounds; after each of them every table is compared, and what is held is copied."""
    for number in range(rounds):
        alterations.expected.clear()
        first = len(alterations.done)
        for _ in range(times):
            application.mutator.ticks(ticks)
            if application.without_spark:
                application.mutator.let_read()
                application.reached()
            alterations.alter(application.cut.tables if application.without_spark else ())
            if alterations.rng.random() < 0.3:
                application.compact()
        application.mutator.ticks(ticks)
        waiting = application.settle()
        message = f"seed {SEED}, round {number}: {alterations.done[first:]}"
        needless = {t: application.held.get(t) for t in waiting if not alterations.may_wait(t)}
        assert not needless, f"{message}, held: {needless}"
        application.copied()
