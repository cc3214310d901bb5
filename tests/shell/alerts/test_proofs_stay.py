"""A proof is red until it is green again, whatever is compacted meanwhile; it turns red in a run that Dagster starts."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.paths import LakePaths
from orchestration.build import build
from tests.support.faults.damage import alter, data_files
from tests.support.servers.fix_postgres import Database
from tests.support.shell.launched import Dagster, dagster
from tests.support.shell.sample import password_of, write_source
from tests.support.shell.shared_spark import SharedSpark
from tests.support.spark.fix_lake import SPARK

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
_REST = """\
    buckets: 16
    tables: [public.orders]
    table:
      public.orders:
        expectations:
          - {type: expect_column_values_to_be_between, kwargs: {column: amount, max_value: 1000}}
views:
  total:
    sql: total.sql
    reads: {orders: shop/public.orders}
spark:
  master: local[2]
  driver_memory: 1g
  conf: """
_ORDERS = TableName("public", "orders")
_GREEN = dict.fromkeys(("table", "history", "view", "expected"), "green")


@pytest.fixture
def config(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A table of a hundred rows, copied, and a view."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, amount int, note text)",
        "INSERT INTO orders SELECT n, n, repeat('note ' || n, 9) FROM generate_series(1, 100) AS n",
        "CREATE PUBLICATION pub FOR TABLE orders",
    )
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    (tmp_path / "total.sql").write_text("SELECT count(*) AS n FROM orders\n", encoding="utf-8")
    result = load(write_source(tmp_path, database, f"{_REST}{json.dumps(SPARK.conf)}\n"))
    bootstrap(result, "shop")
    return result


def _colours(running: Dagster) -> dict[str, str]:
    shown = {
        "table": running.shown("proof/current/shop/public/orders"),
        "history": running.shown("proof/history/shop/public/orders"),
        "view": running.shown("proof/views/total"),
        "expected": running.shown("expectations/shop/public/orders"),
    }
    return {name: next(iter(checks.values())) for name, checks in shown.items()}


def _run(config: Config, instance: dg.DagsterInstance, *jobs: str, asset: str | None = None) -> None:
    """Run jobs, or one asset of them, in this process: a run that Dagster starts takes a JVM more."""
    defs, spark = build(config), SharedSpark(config_path=str(config.path))
    for job in jobs:
        definition = defs.resolve_job_def(job)
        if asset is not None:
            definition = definition.get_subset(asset_selection={dg.AssetKey(asset.split("/"))})
        resources = {"compute": spark} if "compute" in definition.required_resource_keys else None
        assert definition.execute_in_process(instance=instance, resources=resources).success


def _compact(config: Config, instance: dg.DagsterInstance) -> None:
    """Drain, compaction and refresh as their schedules run them: their own doings are tested elsewhere."""
    _run(config, instance, "shop_drain", "shop_compaction", "views_refresh")


def _other_amounts(rows: pa.Table) -> pa.Table:
    amounts = pc.if_else(pc.greater(rows["id"], 50), pc.add(rows["amount"], 5000), rows["amount"])
    return rows.set_column(rows.column_names.index("amount"), "amount", amounts.cast(rows["amount"].type))


@pytest.mark.full
def test_a_red_proof_stays_red_until_a_proof_is_green(
    database: Database, config: Config, spark: SparkSession, tmp_path: Path
) -> None:
    """Compactions and other proofs don't change it; the same goes for an expectation, a history and a view."""
    with dagster(tmp_path / "dagster", config.path) as running:
        _compact(config, running.instance)
        assert set(_colours(running).values()) == {"grey"}
        _run(config, running.instance, "shop_verification")
        assert _colours(running) == _GREEN

        current = Path(config.lake) / LakePaths("shop").current(_ORDERS)
        alter(data_files(current)[0], _other_amounts)
        assert running.launch("shop_verification").is_success
        red = _colours(running)
        assert red == {"table": "red", "history": "red", "view": "green", "expected": "red"}

        database.execute("INSERT INTO orders VALUES (101, 7, NULL)")
        _compact(config, running.instance)
        assert _colours(running) == red
        _run(config, running.instance, "shop_verification", asset="proof/views/total")
        assert _colours(running) == red

        assert prove(config, "shop", None, spark, request=ProofRequest(repair=True)).equal
        assert _colours(running) == red
        _run(config, running.instance, "shop_verification")
        assert _colours(running) == _GREEN
