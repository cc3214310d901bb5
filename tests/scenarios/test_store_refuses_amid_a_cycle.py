"""A store that refuses requests of a cycle (a bucket policy, revoked keys) ends it with one error and holds no table.

It held each table after two attempts: our own client's refusals were taken for the table's. Those of Spark are in
`test_compaction_object_store.py`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from lakeproof.config.location import LakeLocation
from lakeproof.errors import StoreRefusesError
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_source import SimulatedSource
from tests.support.stores.fix_object_store import storage
from tests.support.stores.object_proxy import Fault, Proxied, Request
from tests.support.workloads.lake_workload import SEED, insert_random_row, make_tables, run_transactions

TABLES = ("order lines", "bag")
ALWAYS = 1_000_000


def _no_jvm() -> Any:
    pytest.fail("a JVM was asked for")


@pytest.mark.parametrize(
    ("method", "ending"),
    [
        ("PUT", ".parquet"),
        ("GET", ".json"),
        pytest.param("PUT", ".json", marks=pytest.mark.full),
        pytest.param("GET", ".parquet", marks=pytest.mark.full),
    ],
)
def test_no_table_is_held_and_the_next_cycle_goes_on(
    s3_lake: LakeLocation, proxied: Proxied, method: str, ending: str
) -> None:
    """The data files, or the logs, of the lake's tables may not be put or read for a while."""
    place, chance = replace(s3_lake, storage=storage(proxied.endpoint, retry_s=5)), random.Random(SEED)
    source = SimulatedSource(place, [t for t in make_tables() if t.version.table.name in TABLES])
    source.snapshot(TABLES)
    config, spark = make_config(place), SparkOnDemand(_no_jvm)
    run_compact(spark, config)
    run_transactions(chance, source, 6)
    for name in TABLES:
        insert_random_row(chance, source, source.table(name))
    source.commit(chance)
    source.flush()

    def matches(request: Request) -> bool:
        inside = "/history/" in request.path or "/current/" in request.path
        return request.method == method and inside and request.path.endswith(ending)

    proxied.faults.append(Fault(matches, ALWAYS, status=403, code="AccessDenied"))
    refused = None
    try:
        run_compact(spark, config)
    except StoreRefusesError as error:
        refused = error
    # What this process has just written itself it need not read.
    assert refused is not None or method == "GET"
    proxied.faults.clear()
    run_compact(spark, config)
    check(config, source, list(TABLES))
    cut = newest_cut(source.lake)
    assert cut is not None
    assert cut.held == {}
