"""Every cause for which a table is held is met on a real server, and each way out is walked to its end.

Seen once: a partition got an identity of its own, and the command that the held table named refused it. The tables and what
is done to them are in `tests/support/faults/held_walks.py`; one lake and one JVM serve them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import maintain
from lakeproof.commands.publish import apply, plan, resume
from lakeproof.commands.recover import recover
from lakeproof.commands.status import status
from lakeproof.commands.teardown import teardown
from lakeproof.config.table_names import parse_table
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.failpoints import watched
from lakeproof.lake.delta import schema
from lakeproof.lake.planning import schema_changes
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.rows import memory
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import Slice
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.values import types
from tests.support.faults.held_walks import DSN, WALKS, Shop
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.servers.fix_postgres import new_database

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
# Met by maintenance alone, which holds nothing for it (`test_maintenance_killed.py` and `test_history_damaged.py`).
NOT_HELD = {WayOut.NEXT_RUN}
_COMMAND = re.compile(r"`lakeproof (bootstrap|resume) shop --tables (\S+)`")


def test_no_cause_and_no_way_out_is_without_its_walk() -> None:
    """Whoever adds one adds its walk."""
    assert {walk.cause for walk in WALKS.values()} == set(HeldCause)
    assert {walk.way_out for walk in WALKS.values()} == set(WayOut) - NOT_HELD


@pytest.fixture
def shop(
    postgres: EmbeddedPostgres, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    """A table for each walk, copied and in the lake, in a database that keeps any octets."""
    with new_database(postgres, "SQL_ASCII") as database:
        monkeypatch.setenv(DSN, database.dsn)
        tables = {name: dict(walk.settings) for name, walk in WALKS.items() if walk.settings}
        shop = Shop(database, tmp_path, spark, tables)
        for name, walk in WALKS.items():
            rows = "INSERT INTO {t} (id, v) SELECT i, 'v' || i FROM generate_series(1, 5) i"
            shop.sql(name, *walk.make, rows)
        database.execute("CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
        apply(shop.config, "shop", plan(shop.config, "shop"))
        bootstrap(shop.config, "shop")
        WALKS["squatted"].holds(shop, "squatted")
        shop.follow()
        yield shop


@pytest.mark.full
def test_each_held_table_comes_back_by_the_way_that_it_names(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are held at once; what each names is done as it stands there, and at the end each equals its source."""
    held = _hold(shop, monkeypatch)
    assert {name: (why.cause, why.way_out) for name, why in held.items()} == {
        name: (walk.cause, walk.way_out) for name, walk in WALKS.items() if name != "away"
    }
    remedies = {t.name: h.remedy for t, h in status(shop.config, ["shop"]).sources["shop"].held.items()}
    _leave(shop, {name: remedies[name] for name in held})
    shop.follow()
    stays = {name for name, walk in WALKS.items() if walk.ends_held}
    assert {table.name for table in shop.cut.held} == stays
    _equal(shop, {*WALKS, "whole"} - stays)
    _next_incarnation(shop)
    _equal(shop, {*WALKS, "whole"} - stays)
    _begin_again(shop)
    _equal(shop, {*WALKS, "whole"} - {"part"})


class EndedError(BaseException):
    """The end of the process."""


def _hold(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> dict[str, Held]:
    """Bring each table into its cause; return how they are held, by their names."""
    nothing = replace(types.KINDS["date"], fits=lambda _typmod: "none")
    # inside: no text that PostgreSQL prints for a date is none
    monkeypatch.setattr(types, "KINDS", {**types.KINDS, "date": nothing})
    with monkeypatch.context() as patched:
        # inside: a heap of 2 GB takes rows that a test has no time for
        patched.setattr(memory, "COPIES", 1 << 10)
        # inside: nothing that a source does is known to make Delta refuse a column
        patched.setattr(schema, "_check_columns", _refusing(schema._check_columns))
        # inside: what names a schema is kept for as long as a row of it may come
        patched.setattr(schema_changes, "_version_of", _forgetting(schema_changes._version_of))
        for name, walk in WALKS.items():
            if name not in ("away", "of_another_schema", "squatted"):
                walk.holds(shop, name)
        shop.follow()
    _while_copied(shop, "not_followed", "bootstrap.after_slot", _removed_meanwhile)
    bootstrap(shop.config, "shop", [_public("not_taken_back")])
    _while_copied(shop, "outdated", "snapshot.before_part", _altered_meanwhile)
    shop.follow()
    shop.small_files = 2
    maintain(shop.config, "shop", shop.spark, silent)
    shop.small_files = 32
    name = "of_another_schema"
    WALKS[name].holds(shop, name)
    bootstrap(shop.config, "shop", [_public(name)])
    shop.sql("whole", "INSERT INTO {t} VALUES (51, 'v')")
    with _ended_at("cycle.after_cut", lambda: _public(name) in shop.cut.held), pytest.raises(EndedError):
        shop.follow()
    return {table.name: why for table, why in shop.cut.held.items() if table.name in WALKS}


def _public(name: str) -> TableName:
    return TableName("public", name)


def _refusing(check: Callable[[str, Sequence[Mapping[str, Any]]], None]) -> Callable[..., None]:
    """Return what checks the columns of a table as if one of them were there twice, where they are to be refused."""

    def twice(path: str, fields: Sequence[Mapping[str, Any]]) -> None:
        check(path, [*fields, fields[0]] if "refused" in path else fields)

    return twice


@contextmanager
def _ended_at(place: str, when: Callable[[], bool]) -> Iterator[None]:
    def end(name: str) -> None:
        if name == place and when():
            raise EndedError

    with watched(end):
        yield


def _while_copied(shop: Shop, name: str, step: str, act: Callable[[Shop, str], None]) -> None:
    """Copy a table, and `act` at a step of the copy: before anything says that it was begun, or that it has ended."""
    done: list[str] = []

    def acting(place: str) -> None:
        if place == step and not done:
            done.append(place)
            act(shop, name)

    with watched(acting):
        bootstrap(shop.config, "shop", [_public(name)])
    assert done


def _altered_meanwhile(shop: Shop, name: str) -> None:
    shop.sql(name, "ALTER TABLE {t} ADD w int", "INSERT INTO {t} VALUES (50, 'v', 1)")
    shop.follow()


def _removed_meanwhile(shop: Shop, name: str) -> None:
    """Land and apply more than the landing keeps."""
    for number in range(6):
        shop.sql(name, "UPDATE {t} SET v = v || '!'")
        drain(shop.config, "shop", Until.caught_up())
        if number > 4:
            compact(shop.config, "shop", shop.spark, silent, Stop())
    maintain(shop.config, "shop", shop.spark, silent)


def _forgetting(version_of: Callable[[Chain, Slice], SchemaVersion]) -> Callable[[Chain, Slice], SchemaVersion]:
    """Return what finds the schema of any landed file, but for one table."""

    def forgetting(chain: Chain, piece: Slice) -> SchemaVersion:
        version = version_of(chain, piece)
        if piece.file.table == _public("forgotten"):
            raise schema_changes.unknown_schema(piece)
        return version

    return forgetting


def _leave(shop: Shop, remedies: Mapping[str, str]) -> None:
    """Do what the remedies ask for; the copies that they name are made at once."""
    copies = []
    for name, remedy in remedies.items():
        walk = WALKS[name]
        walk.leaves(shop, name)
        if walk.then is not None:
            shop.tables[name] = walk.then
        commands = dict(_COMMAND.findall(remedy))
        assert walk.ends_held or commands, f"{name}: {remedy}"
        if "resume" in commands:
            assert not resume(shop.config, "shop", [parse_table(commands["resume"])], silent).failed
        if "bootstrap" in commands:
            copies.append(parse_table(commands["bootstrap"]))
    assert not bootstrap(shop.config, "shop", copies).failed


def _next_incarnation(shop: Shop) -> None:
    """Lose the slot after a table has left the publication unseen, and bring that table back."""
    name, walk = "away", WALKS["away"]
    walk.holds(shop, name)
    shop.database.drop_slot(shop.database.name)
    recover(shop.config, "shop")
    shop.follow()
    held = shop.cut.held[_public(name)]
    assert (held.cause, held.way_out) == (walk.cause, walk.way_out)
    _leave(shop, {name: status(shop.config, ["shop"]).sources["shop"].held[_public(name)].remedy})
    shop.follow()
    assert _public(name) not in shop.cut.held


def _begin_again(shop: Shop) -> None:
    """Begin the source's lake again in another folder: what is held and can't be mended is followed there."""
    teardown(shop.config, "shop")
    shop.lake_name = "another_lake"
    apply(shop.config, "shop", plan(shop.config, "shop"))
    assert not bootstrap(shop.config, "shop").failed
    shop.follow()
    assert shop.cut.held == {}


def _equal(shop: Shop, names: set[str]) -> None:
    """Compare the lake with the source after one more change of each table."""
    tables = tuple(map(_public, sorted(names)))
    for table in tables:
        shop.sql(table.name, "DELETE FROM {t} WHERE id = 2")
    shop.follow()
    dsn = psycopg.conninfo.make_conninfo(shop.database.dsn, client_encoding="UTF8")
    rows, cut = source_rows(dsn, tables), shop.cut
    for table in tables:
        version = cut.tables[table].current_version
        actual = lake_rows(shop.place(table.name, "current"), version, *table_columns(dsn, table))
        assert actual == rows[table], f"{table}, {cut.held.get(table)}"
