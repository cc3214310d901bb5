"""Nullability, defaults and whole types of a source's tables, as its drain keeps them in the lake after an ALTER."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.descriptions import describing
from lakeproof.drain.until import Until
from lakeproof.events import Event, silent
from lakeproof.lake.cycle.schemas.history import publish_schemas
from lakeproof.lake.records.described import DescribedTable, read_described
from lakeproof.lake.records.documents import NO_ROWS, Cut, CutTable, CycleKind, Intent
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.snapshot.folder import finished_tables
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
T = TableName("public", "t")
ONE = Incarnation(1)
Facts = dict[str, tuple[str, bool, str | None]]


def facts(lake: SourceLake) -> Facts:
    """Type, NOT NULL and default of each column, as the lake has them."""
    return {c.name: (c.type, c.not_null, c.default) for c in read_described(lake)[T].columns}


def test_an_alter_is_in_the_lake_when_its_drain_has_seen_it(database: Database, tmp_path: Path) -> None:
    """Without a run of Dagster's: each statement of its own, one drain after it, and a version of the table each time."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, price numeric(10, 2), note text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE t, other",
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    drain(config, "shop", Until.caught_up())
    lake = SourceLake.open(config.location, "shop")
    as_it_is: Facts = {
        "id": ("integer", True, None),
        "price": ("numeric(10,2)", False, None),
        "note": ("text", False, None),
    }
    assert facts(lake) == as_it_is
    versions = [as_it_is]
    steps: tuple[tuple[LiteralString, Facts], ...] = (
        ("ALTER TABLE t ALTER note SET NOT NULL", {"note": ("text", True, None)}),
        ("ALTER TABLE t ALTER note SET DEFAULT 'none'", {"note": ("text", True, "'none'::text")}),
        ("ALTER TABLE t ALTER price TYPE numeric(12, 4)", {"price": ("numeric(12,4)", False, None)}),
        ("ALTER TABLE t ADD stock int NOT NULL DEFAULT 3", {"stock": ("integer", True, "3")}),
        ("ALTER TABLE t ALTER note DROP NOT NULL", {"note": ("text", False, "'none'::text")}),
    )
    for statement, changed in steps:
        database.execute(statement)
        drain(config, "shop", Until.caught_up())
        as_it_is = {**as_it_is, **changed}
        assert facts(lake) == as_it_is, statement
        versions.append(as_it_is)
    keys = lake.store.list(lake.paths.description_versions(T))
    kept = [DescribedTable.from_bytes(lake.store.get(key), key).description for key in keys]
    assert [{c.name: (c.type, c.not_null, c.default) for c in version.columns} for version in kept] == versions
    assert lake.store.list(lake.paths.description_versions(TableName("public", "other"))) == []


def test_a_schema_document_has_what_is_known_of_its_columns(database: Database, tmp_path: Path) -> None:
    """The document that a cut puts for other programs; what nobody has read yet is null in it."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, price numeric(10, 2) DEFAULT 1.5)", "CREATE PUBLICATION pub FOR TABLE t"
    )
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    point = bootstrap(config, "shop").consistent_point
    lake = SourceLake.open(config.location, "shop")
    version = finished_tables(lake, ONE)[T].table.version
    written = {}
    for number in (CycleNumber(1), CycleNumber(2)):
        intent = Intent(number, CycleKind.APPLY, ONE, point, point, (), 0, NO_ROWS, {}, {}, 1, "w", "")
        cut_table = CutTable(point, point, 0, 0, version, ONE, ONE)
        cut = Cut(number, CycleKind.APPLY, ONE, point, None, {T: cut_table}, 1, "0" * 64, "2026-11-01T00:00:00.000000Z")
        publish_schemas(lake, intent, None, cut)
        columns = json.loads(lake.store.get(lake.paths.schema_version(T, number)))["columns"]
        written[number] = [(c["name"], c["type"], c["not_null"], c["default"]) for c in columns]
        lake.store.delete(lake.paths.descriptions)
    assert written == {
        1: [("id", "integer", True, None), ("price", "numeric(10,2)", False, "1.5")],
        2: [("id", None, None, None), ("price", None, None, None)],
    }


def test_a_lasting_drain_keeps_what_changed_before_it_ended(database: Database, tmp_path: Path) -> None:
    """A change that is reported just before the end is read all the same; nothing is read for events of other kinds."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    lake = SourceLake.open(config.location, "shop")
    with describing(config, "shop", silent) as report:
        report(Event("drain.flush", "", {}))
    assert read_described(lake) == {}
    with describing(config, "shop", silent) as report:
        for _ in range(3):
            report(Event("drain.catalog", "", {}))
    assert facts(lake) == {"id": ("integer", True, None)}
