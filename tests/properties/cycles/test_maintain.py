"""Retention and maintenance on real tables: what is needed stays, what is not goes, and the lake is what the source was.

Links of the landing alone are in `tests/core/landing/test_landing_retention.py`.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakeproof
from lakeproof.commands.maintain import MaintenanceRequest, maintain, maintenance_plan
from lakeproof.config.model import Config
from lakeproof.errors import LakeError, TransientError
from lakeproof.events import Stop, silent
from lakeproof.lake.cycle.upkeep.maintenance import history_id
from lakeproof.lake.delta.files.needed import remove_files, table_files, unneeded
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.store import cut_numbers, write_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain, verify_chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.proof.lake.history import prove_history
from lakeproof.proof.lake.side import LakeReader
from lakeproof.storage.local import LocalStore
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.maintain_steps import BAG, LINES, MUCH_LATER, TABLES, begun, newest_cut_of, policy
from tests.support.lake.simulated_rows import rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import SEED, random_row, run_transactions

pytestmark = pytest.mark.spark


class StopsAfter:
    """A request to stop that comes when it was asked for so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    @property
    def requested(self) -> bool:
        """True if it has come."""
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.full)])
def test_what_no_kept_cut_needs_goes_and_the_rest_is_whole(spark: SparkSession, tmp_path: Path, rounds: int) -> None:
    """Cycles and maintenance in turn: the plan says what will go, it goes, and the source's rows are all there."""
    rng, source = begun(tmp_path)
    nothing_kept = policy(tmp_path, cuts_s=0, landing_s=0, small_files=2)
    for _ in range(rounds):
        for _ in range(2):
            for _ in range(4):
                run_transactions(rng, source, 2)
            # By the default policy: so few files are too many for none of its cycles.
            run_compact(spark, policy(tmp_path))
        # The default policy keeps what is younger than its days.
        assert maintenance_plan(policy(tmp_path), SOURCE).freed["landing"].files == 0
        pinned = read_lake(nothing_kept)
        before = {t: rows_of(pinned.table(SOURCE, t, hidden=True), source.tables[t].version) for t in (LINES, BAG)}
        planned = maintenance_plan(nothing_kept, SOURCE, MUCH_LATER)
        assert set(planned.optimized) == {LINES, BAG}
        with pytest.raises(TransientError, match="asked to stop"):
            maintain(
                nothing_kept, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER), cast("Stop", StopsAfter(2))
            )
        assert len(source.lake.store.list(source.lake.paths.intents)) > len(
            source.lake.store.list(source.lake.paths.cuts)
        ), "amid its cycle"
        done = maintain(nothing_kept, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER))
        assert (len(done.cycles), done.optimized) == (1, ())
        assert done.freed["landing"].files >= planned.freed["landing"].files > 0
        assert done.freed["tables"].files > 0
        assert len(cut_numbers(source.lake)) == 1
        assert verify_chain(Chain.open(source.lake, source.chain.incarnation)) < source.chain.next_number
        check(nothing_kept, source, list(TABLES))
        assert {
            t: rows_of(read_lake(nothing_kept).table(SOURCE, t, hidden=True), source.tables[t].version)
            for t in (LINES, BAG)
        } == before
        with pytest.raises(LakeError, match="it is not kept any more"):
            pinned.table(SOURCE, LINES)
        again = maintenance_plan(nothing_kept, SOURCE, MUCH_LATER)
        assert (again.optimized, again.freed["tables"].files, again.freed["landing"].files) == ((), 0, 0)
        assert again.freed["snapshots"].files == again.freed["cuts"].files == 0


@pytest.mark.full
def test_a_pinned_cut_within_the_policy_is_readable_of_an_idle_table_too(spark: SparkSession, tmp_path: Path) -> None:
    """A table that did not change for a year: its version is old, and one more commit makes it no longer the newest."""
    rng, source = begun(tmp_path)
    config = policy(tmp_path, landing_s=0)
    run_transactions(rng, source, 4)
    run_compact(spark, config)
    pinned = read_lake(config)
    state = source.state_at(pinned.position(SOURCE))
    # What can't be done is refused before an intent stands for it, and the next cycle is not in its way.
    with pytest.raises(LakeError, match="the archive has nothing of it"):
        maintain(config, SOURCE, spark, silent, MaintenanceRequest(restore=[LINES]))
    year_ago = datetime.now(timezone.utc).timestamp() - 365 * 86_400
    for log in tmp_path.glob(f"{SOURCE}/*/app/*/_delta_log/*.json"):
        os.utime(log, (year_ago, year_ago))
    run_transactions(rng, source, 4)
    run_compact(spark, config)
    maintain(config, SOURCE, spark, silent)
    other = spark.newSession()
    # As a reader has it who knows nothing of this lake.
    other.conf.set("spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration", "true")
    for table in (LINES, BAG):
        actual = open_lake(other, config, int(pinned.cut(SOURCE).number)).table(SOURCE, table, hidden=True)
        assert rows_of(actual, source.tables[table].version) == state[table], f"seed {SEED}"


def histories_are_whole(spark: SparkSession, config: Config) -> None:
    """Each history has the rows that were written, and adds up to current: so this process says, and so does Spark."""
    for engine in ("auto", "spark"):
        reader = LakeReader.of(SourceLake.open(config.lake, SOURCE), SparkOnDemand.of(spark), engine)
        proofs = {t: prove_history(reader, t, position, 8) for t, position in newest_cut_of(config).tables.items()}
        assert {t: p.reason for t, p in proofs.items() if p.status != "equal"} == {}, f"{engine}, seed {SEED}"
        assert {p.by_spark is None for p in proofs.values()} == {engine == "auto"}


@pytest.mark.full
@pytest.mark.parametrize("damaged", [False, True])
def test_history_by_age_keeps_a_state_at_its_low_end(spark: SparkSession, tmp_path: Path, *, damaged: bool) -> None:
    """Old changes go to the archive and come back; from the low end on every position and a rebuilt current are exact."""
    rng, source = begun(tmp_path)
    for _ in range(2):
        run_transactions(rng, source, 10)
        run_compact(spark, make_config(tmp_path))
    cut = newest_cut_of(make_config(tmp_path))
    first_cut = read_lake(tmp_path, 1).cut(SOURCE)
    rows = {t: read_lake(tmp_path).history(SOURCE, t).arrow().num_rows for t in (LINES, BAG)}
    # The simulated source's clock stands in 2023, and is not asked: the first cut is older than a millisecond after it.
    now = datetime.now(timezone.utc)
    config = policy(
        tmp_path,
        history_s=(now - time_of(first_cut.created_at)).total_seconds() - 0.001,
        archive=str(tmp_path / "archive"),
        cuts_s=0,
        small_files=1000,
    )
    done = maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=now))
    assert set(done.trimmed) == {LINES, BAG}, f"seed {SEED}"
    low = newest_cut_of(config).tables[LINES].history_low
    assert low is not None
    assert low.ordinal >= first_cut.ordinals.end
    lake = read_lake(config)
    kept = {t: lake.history(SOURCE, t).arrow().num_rows for t in (LINES, BAG)}
    assert all(kept[t] < rows[t] for t in kept)
    check(config, source, list(TABLES))
    histories_are_whole(spark, config)
    for place in [p for p in sorted(source.states) if low.at_lsn <= Lsn(p) <= cut.position][::4]:
        actual = lakeproof.as_of(spark, config, Lsn(place))
        for t in (LINES, BAG):
            if t in actual.tables:
                assert rows_of(actual.table(t, hidden=True), source.tables[t].version) == source.state_at(Lsn(place))[t]
    # The cut before the trim is gone with the next run: until then its history is whole.
    maintain(policy(tmp_path, cuts_s=0, small_files=1000), SOURCE, spark, silent)
    with pytest.raises(LakeError, match="is not in the lake at"):
        lakeproof.as_of(spark, config, Lsn(int(low.at_lsn) - 1)).table(LINES)

    if damaged:
        _damage(spark, config, source)
        maintain(config, SOURCE, spark, silent, MaintenanceRequest(rebuild=[LINES, BAG], now=now))
        check(config, source, list(TABLES))
    maintain(config, SOURCE, spark, silent, MaintenanceRequest(restore=[LINES, BAG], now=now))
    lake = read_lake(config)
    assert {t: lake.history(SOURCE, t).arrow().num_rows for t in (LINES, BAG)} == rows
    histories_are_whole(spark, config)


def test_an_archive_that_has_a_part_brings_no_whole_history_back(spark: SparkSession, tmp_path: Path) -> None:
    """Another archive was configured between two trims; each has a folder for the Delta table that history is."""
    rng, source = begun(tmp_path)
    for archive in ("one", "two"):
        run_transactions(rng, source, 10)
        run_compact(spark, make_config(tmp_path))
        config = policy(tmp_path, history_s=1, archive=str(tmp_path / archive), cuts_s=0, small_files=1000)
        assert LINES in maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER)).trimmed
        place = LocalStore(tmp_path / archive).folders(source.lake.paths.history(LINES))
        assert place == [history_id(source.lake, LINES)]
    back = policy(tmp_path, archive=str(tmp_path / "two"), small_files=1000)
    maintain(back, SOURCE, spark, silent, MaintenanceRequest(restore=[LINES]))
    low = newest_cut_of(config).tables[LINES].history_low
    assert low is not None, f"seed {SEED}"
    assert not low.archived
    check(config, source, list(TABLES))


@pytest.mark.full
def test_cuts_still_name_rows_that_have_left_history(spark: SparkSession, tmp_path: Path) -> None:
    """A truncate that has left: the changes up to its cut have its deletes, and history's low end does not go back."""
    rng, source = begun(tmp_path)
    config = policy(tmp_path, history_s=1, cuts_s=1_000 * 86_400, small_files=1000)
    run_compact(spark, config)
    count = len(source.table("order lines").rows)
    source.truncate(source.table("order lines"))
    truncated = source.commit(rng)
    source.flush()
    run_compact(spark, config)
    source.insert(source.table("bag"), random_row(rng, source.table("bag")))
    source.commit(rng)
    source.flush()
    run_compact(spark, config)
    # An OPTIMIZE by somebody else changes nothing, and is in nobody's way.
    spark.sql(f"OPTIMIZE delta.`{source.lake.url(source.lake.paths.history(LINES))}`")
    for again in (False, True):
        trimmed = maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER)).trimmed
        assert (LINES in trimmed) is not again, "what has left does not leave twice"
        low = newest_cut_of(config).tables[LINES].history_low
        assert low is not None
        assert low.at_lsn == truncated
    actual = lakeproof.changes(spark, config, 1).table(LINES)
    assert [(row["cut"], row["kind"]) for row in actual.collect()] == [(2, "delete")] * count, f"seed {SEED}"
    steps = {int(step.cut.number): step.table(LINES).arrow() for step in lakeproof.read_changes(config, 1)}
    given = {number: rows.column("kind").to_pylist() for number, rows in steps.items() if rows.num_rows}
    assert given == {2: ["delete"] * count}, f"seed {SEED}"


def _damage(spark: SparkSession, config: Config, source: SimulatedSource) -> None:
    """Rows lost and doubled in current, by a cycle of maintenance that is not what it says: only the rows tell."""
    cut = newest_cut_of(config)
    tables = dict(cut.tables)
    for table in (LINES, BAG):
        path, position = source.lake.url(source.lake.paths.current(table)), cut.tables[table]
        frame = spark.read.format("delta").option("versionAsOf", position.current_version).load(path)
        lost = frame.limit(2).localCheckpoint()
        kept = frame.join(lost, ["_lp_key"] if table == BAG else ["region", "id"], "left_anti").select(frame.columns)
        rows = kept.unionAll(frame.limit(3))
        rows.localCheckpoint().write.format("delta").mode("overwrite").save(path)
        tables[table] = replace(position, current_version=position.current_version + 1)
    write_cut(source.lake, replace(cut, number=CycleNumber(cut.number + 1), tables=tables))


def test_a_checkpoint_without_all_its_parts_is_not_read(tmp_path: Path) -> None:
    """The files of its missing part would count as unneeded; the commits name them all."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(3):
        added = json.dumps({"add": {"path": f"{version}.parquet", "size": 1, "dataChange": True}})
        (log / f"{version:020d}.json").write_text(added, encoding="utf-8")
        (tmp_path / f"{version}.parquet").touch()
    no_file = pa.table({"add": pa.array([None], pa.struct([("path", pa.string())]))})
    pq.write_table(no_file, log / f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet")
    files = table_files(str(tmp_path), 2)
    assert files.checkpoint == -1
    assert files.needed == {"0.parquet", "1.parquet", "2.parquet"}
    pq.write_table(no_file, log / f"{2:020d}.checkpoint.{2:010d}.{2:010d}.parquet")
    assert table_files(str(tmp_path), 2).checkpoint == 2


def test_files_of_killed_writers_go_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    """A file that no commit names is unneeded, checksums with their files; one of any version from the oldest on is not."""
    path = str(tmp_path / "t")
    for number in range(3):
        spark.range(10).withColumn("v", F.lit(number)).coalesce(1).write.format("delta").option(
            "delta.enableDeletionVectors", "true"
        ).mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")  # noqa: S608  a folder of our own
    spark.sql(f"OPTIMIZE delta.`{path}`")
    stray = tmp_path / "t" / "part-stray.parquet"
    stray.write_bytes(b"of a commit that never was")
    position = {
        version: spark.read.format("delta").option("versionAsOf", version).load(path).count() for version in (3, 4)
    }
    assert [p for p, _ in unneeded(path, table_files(path, 0)) if p.endswith(".parquet")] == [str(stray)]
    files = table_files(path, 4)
    assert [file.vector for file in files.newest] == [None]
    for oldest in (3, 4):
        remove_files(unneeded(path, table_files(path, oldest)))
        for version in range(oldest, 5):
            assert spark.read.format("delta").option("versionAsOf", version).load(path).count() == position[version]
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
