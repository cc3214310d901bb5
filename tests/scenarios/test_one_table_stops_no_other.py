"""A fault of one table does not stop its source's cycle: the table is held, and a copy of it reads nothing damaged."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.config.model import Config
from lakeproof.errors import TransientError
from lakeproof.events import silent
from lakeproof.lake.columns import in_lake
from lakeproof.lake.cycle import apply_cycle as cycle
from lakeproof.lake.cycle import attempts
from lakeproof.lake.cycle.task import TableResult, TableTask
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import replayed
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import WayOut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.segments.reader import slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import Identity
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.foreign_commits import begun, write
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.maintain_steps import MUCH_LATER, policy
from tests.support.lake.simulated_rows import rows_of, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

BAD, GOOD = "bag", "good"
NAMES = (BAD, GOOD)
BAD_TABLE = TableName("app", BAD)


def newest(config: Config) -> Cut:
    """The newest cut."""
    return read_lake(config).cuts[SOURCE]


def held(config: Config) -> dict[str, str]:
    """The reason of each held table."""
    return {table.name: why.reason for table, why in newest(config).held.items()}


def damage(folder: str) -> None:
    """Cut the data files of a table short."""
    for live in table_files(folder, newest_version(folder)).newest:
        file = Path(folder) / live.path
        file.write_bytes(file.read_bytes()[:40])
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def replays(spark: SparkSession, config: Config, source: SimulatedSource) -> None:
    """History alone makes each table."""
    cut, lake = newest(config), SourceLake.open(config.lake, SOURCE)
    for table, position in cut.tables.items():
        history = read_layer(spark, lake, table, position, "history")
        rows = replayed(spark, in_lake(position.version), history, completing(position, history))
        assert rows_of(rows, position.version) == source.state_at(cut.position)[table], table


@pytest.mark.full
def test_a_damaged_file_of_current_holds_its_table_and_a_copy_rewrites_it(spark: SparkSession, tmp_path: Path) -> None:
    """The copy's first attempt reads what is there, the second does not; `--rebuild` needs history alone."""
    source, config = begun(tmp_path, NAMES)
    run_compact(spark, config)
    damage(source.lake.url(source.lake.paths.current(BAD_TABLE)))
    write(source, range(10, 20))
    run_compact(spark, config)
    assert set(held(config)) == {BAD}
    message = r"it could not be written, 2 times: /\S+/current/\S+\.parquet: it is damaged \(.+\)"
    assert re.fullmatch(message, held(config)[BAD]), held(config)
    assert newest(config).held[BAD_TABLE].way_out is WayOut.SNAPSHOT
    check(config, source, [GOOD])
    maintain(config, SOURCE, spark, silent, MaintenanceRequest(rebuild=[BAD_TABLE]))
    source.snapshot([BAD])
    write(source, range(20, 30))
    run_compact(spark, config)
    assert held(config) == {}
    check(config, source, list(NAMES))
    write(source, range(30, 40))
    run_compact(spark, config)
    check(config, source, list(NAMES))
    replays(spark, config, source)
    assert list(Path(source.lake.url(source.lake.paths.attempts)).iterdir()) == []

    damage(source.lake.url(source.lake.paths.current(BAD_TABLE)))
    source.snapshot([BAD])
    write(source, range(40, 50))
    run_compact(spark, config)
    assert held(config) == {}
    assert read_lake(config).history(SOURCE, BAD_TABLE).arrow()["_lp_op"].to_pylist().count("reset") == 1
    replays(spark, config, source)
    check(config, source, list(NAMES))


@pytest.mark.full
def test_a_damaged_file_of_history_holds_its_table_and_a_copy_begins_it_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Maintenance finds the damage, and maintains the other tables. One that is gone is in `test_history_unreadable.py`."""
    source, _ = begun(tmp_path, NAMES)
    config = policy(tmp_path, small_files=2)
    run_compact(spark, config)
    write(source, range(10, 20))
    run_compact(spark, config)
    damage(source.lake.url(source.lake.paths.history(BAD_TABLE)))
    done = maintain(config, SOURCE, spark, silent)
    assert [table.name for table in done.optimized] == [GOOD]
    assert set(held(config)) == {BAD}
    message = r"its history can't be read: /\S+/history/\S+\.parquet"
    assert re.fullmatch(message, held(config)[BAD]), held(config)
    source.snapshot([BAD])
    write(source, range(20, 30))
    run_compact(spark, config)
    assert held(config) == {}
    check(config, source, list(NAMES))
    replays(spark, config, source)
    position = newest(config).tables[BAD_TABLE]
    assert position.history_low is not None
    write(source, range(30, 40))
    run_compact(spark, config)
    maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER))
    replays(spark, config, source)


@pytest.mark.full
@pytest.mark.parametrize("left", [pytest.param(0, marks=pytest.mark.full), 100])
def test_a_damaged_file_of_the_landing_holds_its_table(spark: SparkSession, tmp_path: Path, left: int) -> None:
    """Empty or cut short: a copy at a later place does not need it; the range may end inside its segment."""
    source, config = begun(tmp_path, NAMES)
    run_compact(spark, config)
    first = write(source, range(10, 20))
    file = Path([piece.url for piece in slices(source.chain, Lsn.ZERO, source.chain.end, BAD_TABLE)][-1])
    file.write_bytes(file.read_bytes()[:left])
    write(source, range(20, 30))
    run_compact(spark, config, Lsn(int(first) - 1))
    reason = held(config)[BAD]
    assert str(file) in reason
    assert "its manifest says" in reason
    run_compact(spark, config)
    check(config, source, [GOOD])
    source.snapshot([BAD])
    write(source, range(30, 40))
    run_compact(spark, config)
    assert held(config) == {}
    check(config, source, list(NAMES))


def test_what_no_table_is_to_blame_for_holds_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A passing error is tried again at once; a full disk, a lost race and an interruption end the run, count nothing.

    One that counted would hold the table: two are enough, and three come one after the other.
    """
    source, config = begun(tmp_path, NAMES)
    run_compact(spark, config)
    write(source, range(10, 20))
    once = cycle._write_table_once
    failures: list[BaseException] = []

    def write_once(session: SparkOnDemand, task: TableTask) -> TableResult:
        written = once(session, task)
        if task.table == BAD_TABLE and failures:
            raise failures.pop(0)
        return written

    # inside: no disk fills, and no JVM ends, in one table's write alone
    monkeypatch.setattr(cycle, "_write_table_once", write_once)
    for error in (OSError(28, "No space left on device"), TransientError("t", "lost", "again"), KeyboardInterrupt()):
        failures.append(error)
        with pytest.raises(type(error)):
            run_compact(spark, config)
    failures.append(RuntimeError("passing"))
    run_compact(spark, config)
    assert failures == []
    assert held(config) == {}
    check(config, source, list(NAMES))
    replays(spark, config, source)


@pytest.mark.full
def test_a_table_in_which_the_jvm_ends_is_distinguished_from_its_neighbours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that were being written are tried alone then; the one in which it ends again is held, and the others go on."""
    source, config = begun(tmp_path, ("deleted", *NAMES))
    run_compact(spark, config)
    write(source, range(10, 20))
    once = cycle._write_table_once
    order: list[str] = []
    both_run = threading.Barrier(2)

    def write_once(session: SparkOnDemand, task: TableTask) -> TableResult:
        order.append(task.table.name)
        if task.table.name in ends:
            if len(ends) == 2:
                both_run.wait(120)
            raise ConnectionRefusedError
        return once(session, task)

    # inside: no disk fills, and no JVM ends, in one table's write alone
    monkeypatch.setattr(cycle, "_write_table_once", write_once)
    monkeypatch.setattr(attempts, "jvm_is_gone", lambda *_: True)  # inside: the JVM is the one of all other tests
    ends = {BAD, GOOD}
    with pytest.raises(TransientError, match="the JVM ended"):
        run_compact(spark, config)
    assert {BAD, GOOD} <= set(order), "the third may not have begun when they end"
    order.clear()
    ends = {BAD}
    with pytest.raises(TransientError, match=r"spark\.driver_memory"):
        run_compact(spark, config)
    assert order == ["deleted", "bag"], "the one that was not being written, then one at a time"
    run_compact(spark, config)
    assert set(held(config)) == {BAD}
    assert "the JVM ended while it was written" in held(config)[BAD]
    check(config, source, ["deleted", GOOD])


def test_columns_by_names_that_spark_and_delta_have_for_themselves(no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """Columns named like our scratch columns are kept under another name, and their tables take changes."""
    columns = {
        "id": "int4",
        "_metadata": "text",
        "__delta_internal_is_row_deleted": "text",
        "_Target_Row_Present_": "text",
        "__lp_first": "text",
    }
    tables = [SimulatedTable(schema("t", columns, ("id",), Identity.DEFAULT, 1))]
    source, config = SimulatedSource(tmp_path, tables), make_config(tmp_path)
    source.snapshot(["t"])
    rng, table = random.Random(1), source.table("t")
    for number in range(2):
        source.insert(table, (number, "a", "b", "c", "d"))
        source.update(table, (number, "a", "b", "c", "d"), (number, "a2", "b2", "c2", "d2"))
        source.commit(rng)
        source.flush()
        run_compact(no_spark, config)
        source.update(table, (number, "a2", "b2", "c2", "d2"), (number, "a3", "b3", None, "d3"))
        source.commit(rng)
        source.flush()
        run_compact(no_spark, config)
    assert held(config) == {}
    rows = read_lake(config).table(SOURCE, TableName("app", "t"))
    assert rows.columns == (
        "id",
        "#2#_metadata",
        "#3#__delta_internal_is_row_deleted",
        "#4#_Target_Row_Present_",
        "#5#__lp_first",
    )
    actual = sorted(tuple(row.values()) for row in rows.arrow().to_pylist())
    assert actual == [(number, "a3", "b3", None, "d3") for number in range(2)]


def test_a_damaged_log_holds_its_table(spark: SparkSession, tmp_path: Path) -> None:
    """The reason is one line, without a Java stack; maintenance leaves the table as it is."""
    source, config = begun(tmp_path, NAMES)
    run_compact(spark, config)
    log = Path(source.lake.url(source.lake.paths.current(BAD_TABLE))) / "_delta_log"
    for file in log.glob("*.crc"):
        file.unlink()
    (log / f"{0:020d}.json").write_bytes(b"")
    write(source, range(10, 20))
    run_compact(spark, config)
    assert set(held(config)) == {BAD}
    assert "\n" not in held(config)[BAD]
    check(config, source, [GOOD])
    maintain(config, SOURCE, spark, silent)
