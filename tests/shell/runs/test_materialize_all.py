"""The largest button: *Materialize all* does every layer's work on a real source, first by itself, then beside runs at work.

What a single job does belongs to `test_job_end_to_end.py`.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from lakeproof.config.load import load
from orchestration.build import build
from tests.support.servers.fix_postgres import Database
from tests.support.shell.launched import Dagster, dagster
from tests.support.shell.sample import password_of, write_source

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]

_REST = """\
    buckets: 16
    tables: [shop.orders, shop.lines]
    table:
      shop.orders:
        expectations:
          - {type: expect_column_values_to_be_unique, kwargs: {column: id}}
views:
  total:
    sql: total.sql
    reads: {orders: shop/shop.orders}
"""
_ALL = "__ASSET_JOB"
# A compaction that goes on refreshes views after each cut, and one refresh waits for another by trying again.
_MAY_WAIT = "views__total"
_PROOFS = ("proof/current/shop/shop/orders", "proof/current/shop/shop/lines", "proof/views/total")


def test_it_makes_everything_alone_and_beside_a_drain_and_a_compaction(database: Database, tmp_path: Path) -> None:
    """Nothing fails on the lease, no table is copied twice, and every proof is green at the end."""
    database.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, amount int)",
        "CREATE TABLE shop.lines (id int PRIMARY KEY, amount int)",
        "INSERT INTO shop.orders SELECT n, n FROM generate_series(1, 100) AS n",
        "CREATE PUBLICATION pub FOR TABLE shop.orders, shop.lines",
    )
    (tmp_path / "total.sql").write_text("SELECT count(*) AS n FROM orders\n", encoding="utf-8")
    path = write_source(tmp_path, database, _REST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", password_of(database))
        graph = build(load(path)).resolve_asset_graph()
        keys = [key.to_user_string() for key in sorted(graph.materializable_asset_keys)]
        with dagster(tmp_path / "dagster", path) as shown:
            _succeeds(shown, keys)
            copied = _copied_at(shown)
            beside = [
                shown.start("shop_drain", ops={"drain_shop": {"until": "max_seconds", "max_seconds": 3600}}),
                shown.start("shop_compaction", ops={"compact_shop": {"until": "max_seconds", "max_seconds": 3600}}),
            ]
            database.execute("UPDATE shop.orders SET amount = 0 WHERE id < 10", "INSERT INTO shop.lines VALUES (1, 1)")
            _succeeds(shown, keys)
            assert _copied_at(shown) == copied
            for run_id in beside:
                going_on = shown.instance.get_run_by_id(run_id)
                assert going_on is not None
                assert going_on.status is dg.DagsterRunStatus.STARTED
                shown.instance.run_launcher.terminate(run_id)
                shown.ended(run_id)


def _succeeds(shown: Dagster, keys: list[str]) -> None:
    run = shown.launch(_ALL, keys)
    events = [e.dagster_event for e in shown.instance.all_logs(run.run_id) if e.dagster_event is not None]
    failed = [
        (e.step_key, e.message, e.event_specific_data)
        for e in events
        if e.is_step_failure or ((e.is_step_restarted or e.is_step_up_for_retry) and e.step_key != _MAY_WAIT)
    ]
    assert run.status is dg.DagsterRunStatus.SUCCESS, failed
    assert not failed
    reported = {str(e.asset_key.to_user_string()) for e in events if e.is_step_materialization and e.asset_key}
    assert reported == set(keys)
    for proof in _PROOFS:
        assert shown.shown(proof) == {"proved_equal": "green"}


def _copied_at(shown: Dagster) -> object:
    event = shown.instance.get_latest_materialization_event(dg.AssetKey(["snapshot", "shop", "shop", "orders"]))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata["consistent_point"].value
