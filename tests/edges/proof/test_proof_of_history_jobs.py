"""Where Spark proves a small table's history it costs few jobs: its rows are read once, and current's buckets are shared."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.compare import FilledBuckets
from lakeproof.proof.lake import history_by_spark as histories
from lakeproof.proof.lake.history import HistoryProof, prove_history
from lakeproof.proof.lake.side import LakeReader
from tests.support.lake.lake_steps import jobs_run, run_compact
from tests.support.lake.maintain_steps import begun, newest_cut_of, policy
from tests.support.lake.simulated_source import SimulatedSource
from tests.support.workloads.lake_workload import run_transactions

pytestmark = pytest.mark.spark
BUCKETS = 8


class Proofs:
    """Proofs of one source's histories, with the jobs that they cost."""

    def __init__(self, spark: SparkSession, source: SimulatedSource) -> None:
        self.spark = spark
        self.reader = LakeReader.of(source.lake, SparkOnDemand.of(spark), "spark")
        self.tables = newest_cut_of(policy(source.folder)).tables

    def current(self, table: TableName, cut_table: CutTable) -> FilledBuckets:
        """The buckets of current, as the comparison with the source has read them."""
        side = self.reader.open(table, cut_table, BUCKETS)
        return FilledBuckets(side.buckets(), side.number)

    def run(self, *, shared: bool) -> tuple[dict[TableName, HistoryProof], int]:
        """Prove every history."""
        current = {t: self.current(t, c) if shared else None for t, c in self.tables.items()}
        before = jobs_run(self.spark)
        proofs = {t: prove_history(self.reader, t, c, BUCKETS, current[t]) for t, c in self.tables.items()}
        return proofs, jobs_run(self.spark) - before


@pytest.mark.full
def test_a_small_history_is_read_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the same, for two fifths of the jobs less at least; nothing stays in memory."""
    rng, source = begun(tmp_path)
    config = policy(tmp_path)
    for _ in range(2):
        run_transactions(rng, source, 6)
        run_compact(spark, config)
    proofs = Proofs(spark, source)
    monkeypatch.setattr(histories, "KEPT_ROWS_MAX", 0)  # inside: 500,000 rows take minutes to make
    proofs.run(shared=True)  # reads the tables' logs, once
    every_time, most = proofs.run(shared=False)
    kept = len(spark.sparkContext._jsc.getPersistentRDDs())  # Delta's own states of logs
    monkeypatch.undo()
    once, fewer = proofs.run(shared=False)
    shared, fewest = proofs.run(shared=True)
    assert {p.status for p in once.values()} == {"equal"}
    assert every_time == once == shared
    assert fewest < fewer < most
    assert fewest <= most * 0.6, (fewest, fewer, most)
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == kept


def test_a_current_that_is_not_the_sum_of_history_differs(spark: SparkSession, tmp_path: Path) -> None:
    """The same holds if its buckets come from the comparison with the source."""
    rng, source = begun(tmp_path)
    run_transactions(rng, source, 6)
    run_compact(spark, policy(tmp_path))
    proofs = Proofs(spark, source)
    # A table that random changes have left without rows is the sum of nothing.
    table, cut_table = next((t, c) for t, c in proofs.tables.items() if proofs.current(t, c).buckets)
    wrong = prove_history(proofs.reader, table, cut_table, BUCKETS, FilledBuckets({}, 1))
    assert wrong.status == "differs"
