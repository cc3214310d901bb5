"""Every job of a source run in this process on a real server: what Dagster then knows, against what PostgreSQL holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from assets.changes import DrainRun
from assets.current import CompactionRun
from lakeproof.config.load import load
from orchestration.build import build
from resources import Settings
from tests.support.servers.fix_postgres import Database, new_database
from tests.support.shell.sample import password_of, write_source
from tests.support.shell.shared_spark import SharedSpark

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_REST = """\
    proof_rows: 200
    compaction: {mode: scheduled}
    buckets: 16
    tables: [shop.orders, 'shop."order lines"']
    table:
      shop.orders:
        expectations:
          - {type: expect_column_values_to_be_unique, kwargs: {column: id}}
          - {type: expect_column_values_to_be_between, kwargs: {column: amount, min_value: 8}, severity: warn}
          - {type: expect_column_values_to_not_be_null, kwargs: {column: gone}}
views:
  total:
    sql: total.sql
    reads: {orders: shop/shop.orders}
"""
_SQL = "SELECT count(*) AS orders, sum(amount) AS amount FROM orders\n"


@dataclass(frozen=True, slots=True)
class Location:
    """The assembled location, an instance, and the database behind it."""

    defs: dg.Definitions
    instance: dg.DagsterInstance
    spark: SharedSpark
    database: Database
    settings: Settings

    def run(self, job: str, **ops: dg.Config) -> dg.ExecuteInProcessResult:
        """Run a job to its end."""
        definition = self.defs.resolve_job_def(job)
        needs_spark = "compute" in definition.required_resource_keys
        return definition.execute_in_process(
            instance=self.instance,
            resources={"compute": self.spark} if needs_spark else None,
            run_config=dg.RunConfig(ops=ops),
        )

    def metadata(self, key: str) -> Mapping[str, Any]:
        """The metadata of an asset's newest materialization."""
        event = self.instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
        assert event is not None
        assert event.asset_materialization is not None
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.fixture(scope="module")
def source(postgres: Any) -> Iterator[Database]:
    """Two tables, one with an odd name, published."""
    with new_database(postgres) as database:
        database.execute(
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, amount numeric(8, 2) NOT NULL, note text)",
            'CREATE TABLE shop."order lines" (id bigint PRIMARY KEY, "order" int)',
            "INSERT INTO shop.orders SELECT n, n, 'note ' || n FROM generate_series(1, 100) AS n",
            'INSERT INTO shop."order lines" SELECT n, 1 + n % 100 FROM generate_series(1, 300) AS n',
            "COMMENT ON COLUMN shop.orders.amount IS 'in euro'",
            'CREATE PUBLICATION pub FOR TABLE shop.orders, shop."order lines"',
        )
        yield database


@pytest.fixture(scope="module")
def location(source: Database, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Location]:
    """The location of a configuration on that source, before anything has run."""
    folder: Path = tmp_path_factory.mktemp("location")
    (folder / "total.sql").write_text(_SQL, encoding="utf-8")
    path = write_source(folder, source, _REST)
    settings = Settings(config_path=str(path))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.local_temp(str(folder)) as instance:
        patch.setenv("LP_SHELL_PASSWORD", password_of(source))
        yield Location(build(load(path)), instance, SharedSpark(config_path=str(path)), source, settings)


@pytest.fixture(scope="module")
def journey(location: Location) -> Location:
    """Bootstrap, changes, drain, compaction and views, in the order of a row's journey."""
    assert location.run("shop_bootstrap").success
    location.database.execute(
        "INSERT INTO shop.orders VALUES (101, 7.5, NULL)",
        "UPDATE shop.orders SET amount = 1000 WHERE id <= 10",
        "DELETE FROM shop.orders WHERE id = 50",
    )
    for job in ("shop_drain", "shop_compaction", "views_refresh"):
        assert location.run(job).success
    return location


def _both(metadata: Mapping[str, Any], name: str) -> int:
    """An LSN that is there as text and as the same integer."""
    high, low = str(metadata[name]).split("/")
    assert metadata[f"{name}_int"] == (int(high, 16) << 32) | int(low, 16)
    return int(metadata[f"{name}_int"])


def test_a_snapshot_says_its_point_and_rows(journey: Location) -> None:
    """All tables of a run have the same consistent point, an odd name among them."""
    orders = journey.metadata("snapshot/shop/shop/orders")
    lines = journey.metadata("snapshot/shop/shop/order-20lines")
    assert _both(orders, "consistent_point") == _both(lines, "consistent_point")
    assert (orders["dagster/row_count"], lines["dagster/row_count"]) == (100, 300)


def test_a_drain_says_what_came_and_how_the_slot_stands(journey: Location) -> None:
    """Every LSN as text and number; a table without changes is reported too, since a person asked."""
    orders = journey.metadata("changes/shop/shop/orders")
    assert (orders["inserts"], orders["updates"], orders["deletes"]) == (1, 10, 1)
    assert "truncates" not in orders
    assert _both(orders, "start_lsn") < _both(orders, "end_lsn")
    assert _both(orders, "confirmed_flush_lsn") >= _both(orders, "end_lsn")
    assert _both(orders, "restart_lsn") > 0
    assert orders["slot"] == journey.database.name
    assert orders["publication"] == "pub"
    assert orders["wal_lag_bytes"] >= 0
    assert journey.metadata("changes/shop/shop/order-20lines")["inserts"] == 0


def test_compaction_reports_history_and_current_of_every_table(journey: Location) -> None:
    """Each has its Delta version, its columns, and the position, which is the data version."""
    orders = journey.metadata("current/shop/shop/orders")
    columns = {c.name: c.type for c in orders["dagster/column_schema"].columns}
    assert {n: columns[n] for n in columns if not n.startswith("_lp")} == {
        "id": "int",
        "amount": "decimal(8,2)",
        "note": "string",
    }
    assert _both(orders, "compacted_through_lsn") == _both(journey.metadata("changes/shop/shop/orders"), "end_lsn")
    amount = next(c for c in orders["dagster/column_schema"].columns if c.name == "amount")
    assert (amount.description, amount.constraints.nullable) == ("in euro", False)
    # The copy's rows, and two for an update: before and after it.
    assert journey.metadata("history/shop/shop/orders")["dagster/row_count"] >= 112
    for key in ("history/shop/shop/orders", "current/shop/shop/order-20lines"):
        assert journey.metadata(key)["delta_version"] >= 0
    event = journey.instance.get_latest_materialization_event(dg.AssetKey(["current", "shop", "shop", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags is not None
    assert event.asset_materialization.tags["dagster/data_version"] == orders["compacted_through_lsn"]


def test_a_view_says_at_which_position_of_its_source_it_stands(journey: Location) -> None:
    """The view's rows equal PostgreSQL's answer."""
    view = journey.metadata("views/total")
    assert _both(view, "shop_lsn") == _both(journey.metadata("current/shop/shop/orders"), "compacted_through_lsn")
    place = Path(journey.settings.config().lake) / "views" / "total"
    row = journey.spark.session.read.format("delta").load(str(place)).first()
    assert row is not None
    expected = journey.database.rows("SELECT count(*), sum(amount) FROM shop.orders")[0]
    assert (row["orders"], row["amount"]) == expected
    shown = {column.name: column.type for column in view["dagster/column_schema"].columns}
    assert (shown["orders"], shown["amount"]) == ("bigint", "decimal(18,2)"), "no type is unknown after a refresh"


@pytest.fixture(scope="module")
def verification(journey: Location) -> dg.ExecuteInProcessResult:
    """The first proof of everything."""
    return journey.run("shop_verification")


def test_verification_proves_tables_and_checks_expectations(
    journey: Location, verification: dg.ExecuteInProcessResult
) -> None:
    """Equal is equal, of tables, histories and views; a broken expectation warns, one that can't be computed fails."""
    actual = {(e.asset_key.path[-1], e.check_name): e for e in verification.get_asset_check_evaluations()}
    for table, rows in (("orders", 100), ("order-20lines", 300)):
        proof, history = actual[table, "proved_equal"], actual[table, "proved_intact"]
        assert history.passed, history.description
        values = {name: value.value for name, value in proof.metadata.items()}
        assert proof.passed, proof.description
        assert values["source_rows"] == values["lake_rows"] == rows
        assert _both(values, "verified_through_lsn") == _both(values, "compared_at_lsn") > 0
        assert journey.metadata(f"proof/current/shop/shop/{table}") == values
    assert actual["orders", "expect_column_values_to_be_unique__id"].passed
    between = actual["orders", "expect_column_values_to_be_between__amount"]
    assert (between.passed, between.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert not actual["orders", "expect_column_values_to_not_be_null__gone"].passed
    expected = journey.metadata("expectations/shop/shop/orders")
    assert (expected["evaluated"], expected["failed"]) == (3, 2)
    # The proof's cut is newer than the view's, which is compared at its own.
    assert actual["total", "proved_equal"].passed
    assert journey.metadata("proof/views/total")["status"] == "equal"


@pytest.mark.usefixtures("verification")
@pytest.mark.full
def test_scheduled_proofs_take_large_tables_in_turn(journey: Location) -> None:
    """One of the two tables exceeds a run's limit; a requested table is proved by itself."""
    schedule = journey.defs.resolve_schedule_def("shop_verification_schedule")
    turns = []
    for _ in range(2):
        with dg.build_schedule_context(instance=journey.instance, resources={"settings": journey.settings}) as context:
            requests = schedule.evaluate_tick(context).run_requests
        assert requests is not None
        chosen = requests[0].asset_selection
        assert chosen is not None
        assert dg.AssetKey(["expectations", "shop", "shop", "orders"]) in chosen
        proofs = [key for key in chosen if key.path[0] == "proof"]
        job = journey.defs.resolve_job_def("shop_verification").get_subset(asset_selection=set(proofs))
        result = job.execute_in_process(instance=journey.instance, resources={"compute": journey.spark})
        actual = [e.asset_key for e in result.get_asset_check_evaluations() if e.passed]
        assert sorted(actual) == sorted(proofs)
        turns.append({"/".join(key.path[1:]) for key in actual})
    assert turns == [
        {"current/shop/shop/order-20lines", "history/shop/shop/order-20lines", "views/total"},
        {"current/shop/shop/orders", "history/shop/shop/orders", "views/total"},
    ]


def test_a_history_and_a_view_are_proved_without_the_source(journey: Location) -> None:
    """A request for these proofs runs only these, even if the server can't be asked."""
    chosen = {dg.AssetKey(["proof", "history", "shop", "shop", "orders"]), dg.AssetKey(["proof", "views", "total"])}
    job = journey.defs.resolve_job_def("shop_verification").get_subset(asset_selection=chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", "wrong")
        result = job.execute_in_process(instance=journey.instance, resources={"compute": journey.spark})
    assert {e.asset_key for e in result.get_asset_check_evaluations() if e.passed} == chosen
    assert {event.asset_key for event in result.get_asset_materialization_events()} == chosen


def test_a_proof_that_could_not_be_made_says_so_and_fails(journey: Location) -> None:
    """The failed proof materializes nothing, so the earlier result stays readable, with its position."""
    key = dg.AssetKey(["proof", "current", "shop", "shop", "orders"])
    before = journey.metadata(key.to_user_string())
    job = journey.defs.resolve_job_def("shop_verification").get_subset(asset_selection={key})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", "wrong")
        patch.setattr("assets.support.engine_call._RETRIES_MAX", 0)  # inside: it would be tried for ten minutes
        result = job.execute_in_process(
            instance=journey.instance, resources={"compute": journey.spark}, raise_on_error=False
        )
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "password authentication failed" in (check.description or "")
    assert check.metadata["verified_through_lsn"].value == before["verified_through_lsn"]
    assert journey.metadata(key.to_user_string()) == before


def test_chosen_tables_are_snapshotted_again_alone(journey: Location) -> None:
    """Selecting one asset of the snapshot job copies that table, at a later point."""
    before = journey.metadata("snapshot/shop/shop/order-20lines")
    job = journey.defs.resolve_job_def("shop_bootstrap")
    key = dg.AssetKey(["snapshot", "shop", "shop", "orders"])
    result = job.execute_in_process(
        instance=journey.instance,
        asset_selection=[key],
        run_config={"ops": {"snapshot_shop": {"config": {"reason": "a test", "copy_again": True}}}},
    )
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [key]
    assert journey.metadata("snapshot/shop/shop/orders")["reason"] == "a test"
    assert journey.metadata("snapshot/shop/shop/order-20lines") == before


def test_a_drain_with_an_end_reports_only_what_changed(journey: Location) -> None:
    """A run like the slot drain sensor's reports a table when it has changed, and ends by itself."""
    journey.database.execute("INSERT INTO shop.orders VALUES (102, 8, NULL)")
    run = DrainRun(until="max_seconds", max_seconds=3)
    result = journey.run("shop_drain", drain_shop=run)
    message = [event.asset_key for event in result.get_asset_materialization_events()]
    assert message == [dg.AssetKey(["changes", "shop", "shop", "orders"])]
    assert journey.metadata("changes/shop/shop/orders")["inserts"] == 1


def test_the_sensor_asks_for_a_drain_where_nobody_reads_the_slot(journey: Location) -> None:
    """The run request fits the job: its configuration is valid for the drain."""
    sensor = journey.defs.resolve_sensor_def("shop_slot_drain_sensor")
    with dg.build_sensor_context(
        instance=journey.instance, definitions=journey.defs, resources={"settings": journey.settings}
    ) as context:
        tick = sensor.evaluate_tick(context)
    assert tick.run_requests is not None
    (request,) = tick.run_requests
    assert request.tags["lakeproof/kept_by_sensor"] == "true"
    job = journey.defs.resolve_job_def("shop_drain")
    assert dg.validate_run_config(job, request.run_config)


def test_the_compaction_schedule_asks_for_a_run_only_where_something_waits(journey: Location) -> None:
    """Rows that have landed are work; once they are in the lake, a tick is skipped."""
    schedule = journey.defs.resolve_schedule_def("shop_compaction_schedule")

    def tick() -> Any:
        resources = {"settings": journey.settings}
        with dg.build_schedule_context(instance=journey.instance, resources=resources) as context:
            return schedule.evaluate_tick(context)

    assert tick().run_requests
    journey.run("shop_compaction")
    assert "is in the lake" in (tick().skip_message or "")


def test_a_continuous_compaction_reports_tables_and_views_as_events(journey: Location) -> None:
    """It ends by itself when its time is over; until then each change that lands is in a cut soon."""
    cut = journey.metadata("current/shop/shop/orders")["cut"]
    journey.database.execute("INSERT INTO shop.orders VALUES (301, 9, 'followed')")
    assert journey.run("shop_drain").success
    options = CompactionRun(until="max_seconds", max_seconds=2, event_seconds=1)
    assert journey.run("shop_compaction", compact_shop=options).success
    orders = journey.metadata("current/shop/shop/orders")
    assert (orders["cut"] > cut, orders["changes"], orders["inserted"]) == (True, 1, 1), orders
    assert _both(orders, "compacted_through_lsn") == _both(journey.metadata("changes/shop/shop/orders"), "end_lsn")
    assert journey.metadata("views/total")["shop_lsn"] == orders["compacted_through_lsn"]
    event = journey.instance.get_latest_materialization_event(dg.AssetKey(["current", "shop", "shop", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.description == "1 change in 1 cycle: 1 row in, 0 rows out"


def test_after_a_cut_the_catalog_has_columns_their_origins_and_comments(journey: Location) -> None:
    """Loading the location again is enough; the types are those that Spark reads."""
    graph = build(load(Path(journey.settings.config_path))).resolve_asset_graph()

    def columns(key: str) -> dict[str, dg.TableColumn]:
        return {c.name: c for c in graph.get(dg.AssetKey(key.split("/"))).metadata["dagster/column_schema"].columns}

    def origins(key: str) -> dict[str, set[str]]:
        lineage = graph.get(dg.AssetKey(key.split("/"))).metadata["dagster/column_lineage"]
        return {
            name: {f"{dep.asset_key.path[0]}.{dep.column_name}" for dep in deps}
            for name, deps in lineage.deps_by_column.items()
        }

    amount = columns("current/shop/shop/orders")["amount"]
    assert (amount.type, amount.description, amount.constraints.nullable) == ("decimal(8,2)", "in euro", False)
    assert amount.tags == {"postgres": "numeric(8,2)"}
    assert columns("postgres/shop/shop/orders")["amount"].type == "numeric(8,2)"
    for layer in ("current", "history"):
        frame = journey.spark.session.read.format("delta").load(
            str(graph.get(dg.AssetKey([layer, "shop", "shop", "orders"])).metadata["dagster/uri"])
        )
        assert {n: c.type for n, c in columns(f"{layer}/shop/shop/orders").items()} == dict(frame.dtypes)
        assert origins(f"{layer}/shop/shop/orders")["note"] == {"snapshot.note", "changes.note"}
    assert origins("snapshot/shop/shop/orders")["note"] == {"postgres.note"}
    view = journey.spark.session.read.format("delta").load(
        str(graph.get(dg.AssetKey(["views", "total"])).metadata["dagster/uri"])
    )
    assert {n: c.type for n, c in columns("views/total").items()} == dict(view.dtypes)
    assert "views_refresh_schedule" in str(graph.get(dg.AssetKey(["views", "total"])).description)
    assert origins("views/total") == {"amount": {"current.amount"}}
