"""Cycles on an object store that loses answers, refuses, is slow and cuts requests off; then one that refuses for good.

Spark's requests and our own go through the proxy. The drain's are in `test_drain_object_store.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError, StoreRefusesError, TransientError
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.jars import s3_settings
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_source import SimulatedSource
from tests.support.stores.fix_object_store import storage
from tests.support.stores.object_proxy import Fault, Proxied, Request
from tests.support.workloads.lake_workload import SEED, make_tables, run_transactions

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full]
TABLES = ("order lines", "bag")
ALWAYS = 1_000_000
# A fault, and of how many requests that match one suffers it.
FAULTS = {
    "answer lost": (Fault(lambda r: r.method == "PUT", ALWAYS, lose=True), 7),
    "answer of a commit lost": (Fault(lambda r: r.method == "PUT" and r.path.endswith(".json"), ALWAYS, lose=True), 3),
    "409": (Fault(lambda r: r.method == "PUT", ALWAYS, status=409, code="ConditionalRequestConflict"), 9),
    "503": (Fault(lambda _: True, ALWAYS, status=503, code="SlowDown"), 11),
    "slow": (Fault(lambda _: True, ALWAYS, delay_s=0.4), 9),
    "cut in half": (Fault(lambda r: r.method == "PUT", ALWAYS, halve=True), 7),
    "answer cut in half": (Fault(lambda r: r.kind == "GET" and r.path.endswith(".parquet"), ALWAYS, shorten=True), 5),
}
REFUSALS = {
    "not permitted": (403, "AccessDenied", StoreRefusesError, "not permitted"),
    "expired": (400, "ExpiredToken", TransientError, "credentials have expired"),
    "clock": (403, "RequestTimeTooSkewed", StoreRefusesError, "clock is off"),
}


@pytest.fixture
def place(s3_lake: LakeLocation, proxied: Proxied, spark: SparkSession) -> LakeLocation:
    """A lake that both Spark and this process reach through the proxy."""
    location = replace(s3_lake, storage=storage(proxied.endpoint, retry_s=30))
    hadoop = spark._jsc.hadoopConfiguration()
    for name, value in s3_settings(location.storage).items():
        if name.startswith("spark.hadoop."):
            hadoop.set(name.removeprefix("spark.hadoop."), value)
    return location


@pytest.fixture
def source(place: LakeLocation) -> SimulatedSource:
    """Two tables that enter, with changes beyond their copy."""
    source = SimulatedSource(place, [t for t in make_tables() if t.version.table.name in TABLES])
    source.snapshot(TABLES)
    run_transactions(random.Random(SEED), source, 6)
    return source


def one_in(fault: Fault, count: int, suffered: Counter[bool]) -> Fault:
    """A fault that one of so many of Spark's requests suffers, one of so many of our own, and no repetition at once.

    `suffered` counts Spark's (True) and ours (False).
    """
    seen = Counter[bool]()

    def matches(request: Request) -> bool:
        if not fault.matches(request):
            return False
        spark = request.is_sparks
        seen[spark] += 1
        suffers = seen[spark] % count == 0
        suffered[spark] += suffers
        return suffers

    return replace(fault, matches=matches)


@pytest.mark.parametrize("fault", FAULTS)
def test_cycles_on_an_unreliable_store_are_the_sources(
    place: LakeLocation, proxied: Proxied, source: SimulatedSource, spark: SparkSession, fault: str
) -> None:
    """Three compactions, the first of which takes the tables in; an error may end one, and never holds a table."""
    config, chance, suffered = make_config(place, engine="spark"), random.Random(SEED), Counter[bool]()
    chosen = one_in(*FAULTS[fault], suffered)
    for _ in range(3):
        proxied.faults.append(chosen)
        for _ in range(8):
            try:
                run_compact(spark, config)
                break
            except TransientError:
                continue
        # The comparison reads without trying again, and each of the attempts may have met the fault.
        proxied.faults.clear()
        run_compact(spark, config)
        check(config, source, list(TABLES))
        run_transactions(chance, source, 6)
    # This process commits, so no fault of commits is one of Spark's.
    of_spark = fault != "answer of a commit lost"
    assert suffered[of_spark] >= 2, f"of Spark's own requests {suffered[True]} suffered it, of ours {suffered[False]}"
    run_compact(spark, config)
    check(config, source, list(TABLES))
    cut = newest_cut(source.lake)
    assert cut is not None
    assert cut.held == {}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_amid_a_cycle_is_one_clear_error_and_holds_no_table(
    place: LakeLocation, proxied: Proxied, source: SimulatedSource, spark: SparkSession, refusal: str
) -> None:
    """The store refuses what Spark writes, from some request on; when it does not any more, the cycle is finished."""
    status, code, kind, text = REFUSALS[refusal]
    config, chance = make_config(place, engine="spark"), random.Random(SEED)
    run_compact(spark, config)
    for ending in (".parquet", ".json", ".crc", ""):
        run_transactions(chance, source, 6)

        def matches(request: Request, ending: str = ending) -> bool:
            inside = "/history/" in request.path or "/current/" in request.path
            return request.method == "PUT" and inside and request.path.endswith(ending)

        proxied.faults.append(Fault(matches, ALWAYS, status=status, code=code))
        error = _error_of(spark, config)
        # Delta does without a checksum file.
        assert (isinstance(error, kind) and text in str(error)) or (ending == ".crc" and error is None), error
        proxied.faults.clear()
        run_compact(spark, config)
        check(config, source, list(TABLES))
        cut = newest_cut(source.lake)
        assert cut is not None
        assert cut.held == {}


def _error_of(spark: SparkSession, config: Config) -> LakeproofError | None:
    try:
        run_compact(spark, config)
    except LakeproofError as error:
        return error
    return None
