"""A snapshot as a run of Dagster: chosen tables alone, its log and metadata, and a run that a person ends. No Spark."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from assets.bootstrap import SnapshotOptions
from assets.changes import DrainRun
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import finished_tables, part_key, read_snapshot, snapshot_folders
from lakeproof.storage.source_lake import SourceLake
from orchestration.build import build
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres
ONE = Incarnation(1)
_REST = """\
    tables: [public.big, public.small, public.other]
    snapshot: {{chunk_pages: 50, bytes_per_s: {limit}}}
"""


@dataclass(frozen=True)
class Location:
    """A configuration file, and what Dagster makes of it."""

    path: Path
    instance: dg.DagsterInstance
    database: Database

    def run(self, *tables: str, copy_again: bool = False) -> dg.ExecuteInProcessResult:
        """The bootstrap's job, of these tables if any are named."""
        job = build(load(self.path)).resolve_job_def("shop_bootstrap")
        keys = [dg.AssetKey(["snapshot", "shop", "public", table]) for table in tables]
        options = dg.RunConfig(ops={"snapshot_shop": SnapshotOptions(copy_again=copy_again)})
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=keys or None,
            run_config=options if copy_again else None,
            raise_on_error=False,
        )

    def copies(self, result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
        """The tables of a run: was it copied, and its newest copy's position."""
        assert result.success
        events = [event.materialization for event in result.get_asset_materialization_events()]
        return {
            event.asset_key.path[-1]: (
                bool(event.metadata["copied"].value),
                str(event.metadata["consistent_point"].value),
            )
            for event in events
        }

    def warnings(self, run_id: str) -> list[str]:
        """The warnings in a run's log."""
        return [entry.user_message for entry in self.instance.all_logs(run_id) if entry.level == logging.WARNING]

    def events_of_a_drain(self) -> dict[tuple[str, str], dg.AssetMaterialization]:
        """The events of a drain like that of the sensor, by layer and table."""
        options = dg.RunConfig(ops={"drain_shop": DrainRun(until="max_seconds", max_seconds=1)})
        result = (
            build(load(self.path))
            .resolve_job_def("shop_drain")
            .execute_in_process(instance=self.instance, run_config=options)
        )
        events = [event.materialization for event in result.get_asset_materialization_events()]
        return {(event.asset_key.path[0], event.asset_key.path[-1]): event for event in events}

    def slow(self, bytes_per_s: int) -> None:
        """Set the limit."""
        write_source(self.path.parent, self.database, _REST.format(limit=bytes_per_s))

    def finished(self) -> set[TableName]:
        """The tables that count."""
        return set(finished_tables(self.places(), ONE))

    def places(self) -> SourceLake:
        lake = str(self.path.parent / "lake")
        return SourceLake.open(lake, "shop")


@pytest.fixture
def location(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """Return a location with three tables; the largest, in pages, has the fewest rows."""
    database.execute(
        "CREATE TABLE small (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)",
        "INSERT INTO small SELECT g, repeat('v', 1000) FROM generate_series(1, 6000) g",
        "DELETE FROM small WHERE id > 50",
        "CREATE TABLE big (id int PRIMARY KEY, v text)",
        "INSERT INTO big SELECT g, repeat('v', 1000) FROM generate_series(1, 4000) g",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE small, big, other",
    )
    path = tmp_path / "lakeproof.yaml"
    monkeypatch.setenv("LAKEPROOF_CONFIG", str(path))
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield Location(path, instance, database)


def test_a_run_is_of_exactly_the_chosen_tables(location: Location) -> None:
    """The run makes one snapshot; each table's metadata has point, rows, chunks and time."""
    location.slow(0)
    result = location.run("small", "other")
    assert result.success
    message = {event.materialization.asset_key.path[-1]: event for event in result.get_asset_materialization_events()}
    assert message.keys() == {"small", "other"}
    assert location.finished() == {TableName("public", "small"), TableName("public", "other")}
    actual = [
        {name: value.value for name, value in event.materialization.metadata.items()} for event in message.values()
    ]
    assert len({each["consistent_point"] for each in actual}) == 1
    assert {each["dagster/row_count"] for each in actual} == {50, 0}
    assert all(each.keys() >= {"chunks", "seconds", "dagster/size_bytes", "slot"} for each in actual)


def test_a_copy_of_the_command_line_is_an_event_once(location: Location) -> None:
    """The next drain reports it, and that nothing has come yet: else Dagster warns before every run that follows."""
    location.slow(0)
    small, other = TableName("public", "small"), TableName("public", "other")
    bootstrap(load(location.path), "shop")
    first = location.events_of_a_drain()
    assert len(first) == 6
    point = finished_tables(location.places(), ONE)[small].consistent_point
    values = first["snapshot", "small"].metadata
    assert (values["consistent_point"].value, values["dagster/row_count"].value) == (str(point), 50)
    assert first["changes", "small"].metadata["inserts"].value == 0
    assert location.events_of_a_drain() == {}
    bootstrap(load(location.path), "shop", [other])
    assert location.events_of_a_drain().keys() == {("snapshot", "other")}
    assert location.run("small", copy_again=True).success
    assert location.events_of_a_drain() == {}


def test_a_table_that_is_copied_already_is_copied_again_only_if_that_is_asked_for(location: Location) -> None:
    """The others of the selection are copied; the log names the job and the setting, and the metadata says which were."""
    location.slow(0)
    first = location.copies(location.run("small", "other"))
    assert {name: copied for name, (copied, _) in first.items()} == {"small": True, "other": True}
    result = location.run()
    second = location.copies(result)
    assert {name: copied for name, (copied, _) in second.items()} == {"small": False, "other": False, "big": True}
    assert {name: second[name][1] for name in first} == {name: point for name, (_, point) in first.items()}
    (line,) = location.warnings(result.run_id)
    assert "public.small" in line
    assert "public.big" not in line
    assert "shop_bootstrap with `ops: {snapshot_shop: {config: {copy_again: true}}}`" in line
    folders = len(snapshot_folders(location.places(), ONE))
    assert {copied for copied, _ in location.copies(location.run("small")).values()} == {False}
    assert len(snapshot_folders(location.places(), ONE)) == folders
    again = location.copies(location.run("small", copy_again=True))
    assert again.keys() == {"small"}
    assert again["small"][0]
    assert again["small"][1] != first["small"][1]


def test_a_run_that_is_ended_leaves_nothing_and_the_next_goes_on(location: Location) -> None:
    """Ending a run raises in its main thread, wherever that is: no slot, no file too many, finished tables count."""
    # The larger table takes 20 s: nobody is done with it before the run is ended.
    location.slow(200_000)
    lake = location.places()
    small = TableName("public", "small")

    def end() -> None:
        wait_until(lambda: small in finished_tables(lake, ONE))
        os.kill(os.getpid(), signal.SIGINT)

    ending = threading.Thread(target=end)
    ending.start()
    assert not location.run().success
    ending.join()
    assert location.database.slots() == {location.database.name}
    assert small in location.finished()
    assert TableName("public", "big") not in location.finished()
    named = {
        lake.url(f"{folder}/{chunk.path}")
        for folder in snapshot_folders(lake, ONE)
        if lake.store.exists(part_key(folder, 0))
        for table in read_snapshot(lake, folder).tables.values()
        for chunk in table.chunks
    }
    assert {str(file) for file in (location.path.parent / "lake").rglob("*.parquet")} == named
    location.slow(0)
    result = location.run()
    assert result.success
    message = {
        e.materialization.asset_key.path[-1]: e.materialization for e in result.get_asset_materialization_events()
    }
    assert message.keys() == {"big", "small", "other"}
    assert "seconds" not in message["small"].metadata
    assert message["small"].metadata["consistent_point"] != message["big"].metadata["consistent_point"]
