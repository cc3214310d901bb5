"""The jobs that a person launches, on a real server: without a confirmation nothing changes, with it what was shown is done.

The commands behind them are tested with the command line (`tests/scenarios`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from assets.checks.proof import ProofRun
from jobs.by_hand.replace import ReplaceRun, TakeBackRun
from jobs.by_hand.source import PauseRun, RebuildRun, RecoverRun, ResumeRun, TeardownRun
from lakeproof.config.load import load
from lakeproof.hidden_columns import ORD
from orchestration.build import build
from resources import Settings
from resources.fixed import fixed
from tests.support.faults.damage import alter, data_files
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source
from tests.support.shell.shared_spark import SharedSpark

pytestmark = [pytest.mark.postgres]
_REST = """\
    buckets: 16
    compaction: {mode: scheduled}
    tables: [shop.orders, shop.lines]
views:
  noted: {sql: noted.sql, reads: {o: shop/shop.orders}}
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """The location, an instance, and the configuration behind it."""

    defs: dg.Definitions
    instance: dg.DagsterInstance
    path: Path
    database: Database

    def run(self, job: str, **ops: dg.Config) -> dg.ExecuteInProcessResult:
        """Run a job to its end, which may be a failure."""
        definition = self.defs.resolve_job_def(job)
        resources = {"compute": fixed(SharedSpark(config_path=str(self.path)))}
        needed = resources if "compute" in definition.required_resource_keys else None
        config = dg.RunConfig(ops=ops) if ops else None
        return definition.execute_in_process(
            instance=self.instance, resources=needed, run_config=config, raise_on_error=False
        )

    def shown(self, result: dg.ExecuteInProcessResult) -> Mapping[str, Any]:
        """The values that the page of a run shows with its result."""
        (output,) = (event for event in result.all_events if event.is_successful_output)
        return {name: value.value for name, value in output.step_output_data.metadata.items()}

    def slots(self) -> int:
        """The slots of the database."""
        (row,) = self.database.rows("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()")
        return int(row[0])


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Iterator[_Place]:
    """Two published tables, of which the landing has the first copy."""
    database.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE shop.lines (id int PRIMARY KEY)",
        "INSERT INTO shop.orders SELECT n, 'note ' || n FROM generate_series(1, 50) AS n",
        "CREATE PUBLICATION pub FOR TABLE shop.orders, shop.lines",
    )
    (tmp_path / "noted.sql").write_text("SELECT id, note FROM o WHERE id < 4", encoding="utf-8")
    path = write_source(tmp_path, database, _REST)
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        patch.setenv("LP_SHELL_PASSWORD", password_of(database))
        here = _Place(build(load(path)), instance, path, database)
        assert here.run("shop_bootstrap").success
        yield here


def _why(result: dg.ExecuteInProcessResult) -> str:
    (failed,) = (event for event in result.all_events if event.is_step_failure)
    details = failed.step_failure_data.user_failure_data
    assert details is not None
    assert {"thing", "reason", "remedy"} <= details.metadata.keys()
    return str(details.description)


def test_teardown_shows_what_would_go_and_drops_only_what_was_confirmed(place: _Place) -> None:
    """A wrong name changes nothing either, and says which one is right."""
    place.database.execute("COMMENT ON PUBLICATION pub IS 'lakeproof: as one that plan makes'")
    plan = place.run("shop_teardown")
    shown = place.shown(plan)
    assert plan.success
    assert (shown["changed"], shown["slot"], shown["publications"]) == (False, place.database.name, "pub")
    assert shown["wal_retained_bytes"] >= 0
    wrong = place.run("shop_teardown", teardown_shop=TeardownRun(confirm="crm"))
    assert "confirm: it is 'crm', and the source's name is 'shop'" in _why(wrong)
    assert place.slots() == 1
    done = place.run("shop_teardown", teardown_shop=TeardownRun(confirm="shop"))
    assert place.shown(done)["changed"] is True
    assert place.slots() == 0
    assert place.database.rows("SELECT count(*) FROM pg_publication")[0][0] == 0
    kinds = [
        e.engine_event_data.metadata["kind"].value
        for e in done.all_events
        if e.is_engine_event and "kind" in e.engine_event_data.metadata
    ]
    records = place.instance.all_logs(done.run_id)
    fields = [
        r.dagster_event.engine_event_data.metadata
        for r in records
        if r.dagster_event and r.dagster_event.is_engine_event
    ]
    kinds += [values["kind"].value for values in fields if "kind" in values]
    assert {"teardown.slot", "teardown.publication"} <= set(kinds)


def test_recover_shows_its_plan_then_begins_anew(place: _Place) -> None:
    """With a slot that goes on there is nothing to recover; without one the plan says why, and what will be copied."""
    assert "there is nothing to recover" in _why(place.run("shop_recover"))
    place.database.execute(f"SELECT pg_drop_replication_slot('{place.database.name}')")
    shown = place.shown(place.run("shop_recover"))
    assert (shown["changed"], shown["incarnation"], shown["copied_tables"]) == (False, 2, 2)
    assert place.database.name in shown["reason"]
    assert place.slots() == 0
    done = place.run("shop_recover", recover_shop=RecoverRun(confirm="shop"))
    assert done.success
    assert place.shown(done)["changed"] is True
    assert place.slots() == 1
    event = place.instance.get_latest_materialization_event(dg.AssetKey(["snapshot", "shop", "shop", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert str(event.asset_materialization.metadata["reason"].value).startswith("recovered: ")


def test_a_table_is_paused_when_that_is_confirmed_and_comes_back_with_a_copy(place: _Place) -> None:
    """The other table goes on; what was done to the paused one meanwhile is in its new copy."""

    def published() -> set[str]:
        return {row[0] for row in place.database.rows("SELECT tablename FROM pg_publication_tables")}

    orders = PauseRun(tables=["shop.orders"])
    plan = place.run("shop_pause", pause_shop=orders)
    (row,) = place.shown(plan)["tables"].records
    assert (place.shown(plan)["changed"], row.data["publications"]) == (False, "pub")
    wrong = place.run("shop_pause", pause_shop=PauseRun(tables=["shop.orders"], confirm="crm"))
    assert "the source's name is 'shop'" in _why(wrong)
    assert "did you mean shop.orders?" in _why(place.run("shop_pause", pause_shop=PauseRun(tables=["shop.order"])))
    assert "it is not paused" in _why(place.run("shop_resume", resume_shop=ResumeRun(tables=["shop.orders"])))
    assert published() == {"orders", "lines"}

    done = place.run("shop_pause", pause_shop=PauseRun(tables=["shop.orders"], confirm="shop"))
    assert done.success
    assert "DROP TABLE" in place.shown(done)["statements"]
    assert published() == {"lines"}
    place.database.execute("DELETE FROM shop.orders WHERE id > 10")
    resumed = place.run("shop_resume")
    assert resumed.success
    assert published() == {"orders", "lines"}
    (row,) = place.shown(resumed)["tables"].records
    assert (row.data["table"], row.data["rows"]) == ("shop.orders", 10)
    event = place.instance.get_latest_materialization_event(dg.AssetKey(["snapshot", "shop", "shop", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["reason"].value == "resumed after a pause"


def test_rebuild_names_a_table_that_the_source_does_not_have(place: _Place) -> None:
    """Before anything starts, with the name that was probably meant."""
    wrong = place.run("shop_rebuild", rebuild_shop=RebuildRun(tables=["shop.order"]))
    assert "did you mean shop.orders?" in _why(wrong)


@pytest.mark.spark
@pytest.mark.full
def test_an_edited_view_is_shown_then_applied_by_its_id_then_taken_back(place: _Place, spark: SparkSession) -> None:
    """The refresh says that it goes on with the old query; the id of another preview applies nothing."""
    for job in ("shop_compaction", "views_refresh"):
        assert place.run(job).success
    (place.path.parent / "noted.sql").write_text("SELECT id, upper(note) AS note FROM o WHERE id < 3", encoding="utf-8")
    assert place.run("views_refresh").success
    event = place.instance.get_latest_materialization_event(dg.AssetKey(["views", "noted"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert "edited, not applied" in str(event.asset_materialization.metadata["not_applied"].value)
    shown = place.shown(place.run("views_replace", replace_view=ReplaceRun(view="noted", samples=1)))
    assert (shown["changed"], shown["inserted"], shown["retracted"]) == (False, 2, 3)
    assert [record.data for record in shown["samples"].records] == [
        {"row": "comes", "id": "1", "note": "NOTE 1"},
        {"row": "goes", "id": "1", "note": "note 1"},
    ]
    wrong = place.run("views_replace", replace_view=ReplaceRun(view="noted", confirm="another"))
    assert f"the newest is {shown['preview']}" in _why(wrong)
    applied = place.shown(place.run("views_replace", replace_view=ReplaceRun(view="noted", confirm=shown["preview"])))
    assert (applied["changed"], applied["inserted"], applied["retracted"]) == (True, 2, 3)
    lake = Settings(config_path=str(place.path)).config().lake

    def rows() -> list[tuple[int, str]]:
        stored = spark.newSession().read.format("delta").load(f"{lake}/views/noted")
        return sorted(map(tuple, stored.select("id", "note").collect()))

    assert rows() == place.database.rows("SELECT id, upper(note) FROM shop.orders WHERE id < 3 ORDER BY id")
    assert place.run("views_take_back", take_view_back=TakeBackRun(view="noted")).success
    assert len(rows()) == 2, "without a confirmation nothing is changed"
    assert place.run("views_take_back", take_view_back=TakeBackRun(view="noted", confirm="noted")).success
    assert rows() == place.database.rows("SELECT id, note FROM shop.orders WHERE id < 4 ORDER BY id")


@pytest.mark.full
@pytest.mark.spark
def test_what_a_proof_found_is_repaired_and_a_table_rebuilt(place: _Place, spark: SparkSession) -> None:
    """Two kinds of damage: a row of current is another one, and so it differs from PostgreSQL until the repair."""
    del spark
    for job in ("shop_drain", "shop_compaction"):
        assert place.run(job).success
    current = Path(Settings(config_path=str(place.path)).config().lake) / "shop" / "current" / "shop" / "orders"

    def damage() -> None:
        alter(
            data_files(current)[-1],
            lambda rows: rows.set_column(
                rows.schema.get_field_index("note"),
                "note",
                rows["note"].slice(0, 1).combine_chunks().take([0] * len(rows)),
            ),
        )

    damage()
    proof = dg.AssetKey(["proof", "current", "shop", "shop", "orders"])

    def colours(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, bool]:
        """The checks of tables: the view was never refreshed, and so has nothing that is proved."""
        checks = result.get_asset_check_evaluations()
        return {check.asset_key: check.passed for check in checks if check.asset_key.path[1] != "views"}

    assert colours(place.run("shop_verification"))[proof] is False
    rebuilt = place.run("shop_rebuild", rebuild_shop=RebuildRun(tables=["shop.orders"]))
    assert rebuilt.success
    shown = place.shown(rebuilt)
    assert shown["rebuilt"] == 1
    assert [record.data["table"] for record in shown["tables"].records] == ["shop.orders"]
    damage()
    repaired = place.run("shop_verification", prove_shop=ProofRun(repair=True))
    assert repaired.success
    assert len(colours(repaired)) == 4, "current and history of both tables"
    assert all(colours(repaired).values())
    (shown_of_proof,) = [
        event.materialization.metadata
        for event in repaired.get_asset_materialization_events()
        if event.materialization.asset_key == proof
    ]
    assert shown_of_proof["repaired"].value == "by keys"
    assert shown_of_proof["repaired_keys"].value == shown_of_proof["repaired_rows_read"].value
    assert ORD not in shown
