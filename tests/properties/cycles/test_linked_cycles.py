"""Cycles whose rows come into history and current by links: at every cut the lake is what the source was.

Crashes in between do not change that. One commit by links is in `tests/edges/lake/test_linked_files.py`; tables that
are never linked are in `test_apply_cycles.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.config.model import Config
from lakeproof.errors import NoRoomError
from lakeproof.events import silent
from lakeproof.failpoints import watched
from lakeproof.lake.cycle import table as cycle_table
from lakeproof.lake.delta.files import links
from lakeproof.lake.delta.link_commit import LinkRequest, RowCommit, prepare_links
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.proof.lake.history_in_arrow import ArrowHistory
from lakeproof.schema import Identity
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.crashes import Crash
from tests.support.lake.lake_steps import check, jobs_run, make_config, run_compact
from tests.support.lake.maintain_steps import MUCH_LATER, policy
from tests.support.lake.simulated_rows import Cell, Row, images_of, schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable
from tests.support.spark.fix_lake import other_file_system
from tests.support.workloads.lake_workload import ODD, SEED

KEYS = 40


def _tables() -> list[SimulatedTable]:
    number = schema(
        "numbers", {"id": "int8", "v": "text", "x": "float8", "Ab": "text"}, ("id",), Identity.DEFAULT, 1101
    )
    pair = schema("pairs", {"v": "text", "part": "text", "id": "int4"}, ("part", "id"), Identity.INDEX, 1102)
    return [SimulatedTable(number), SimulatedTable(pair)]


def _random_row(rng: random.Random, table: SimulatedTable) -> Row:
    cells: list[Cell] = []
    for i, column in enumerate(table.version.columns):
        match column.kind:
            case "int4" | "int8":
                cells.append(rng.randrange(KEYS))
            case "float8":
                cells.append(rng.choice([None, 0.0, -0.0, float("nan"), 1.5]))
            case _:
                cells.append(rng.choice(["eu", "us", ""]) if i in table.key else rng.choice([None, *ODD]))
    return tuple(cells)


def _free_row(rng: random.Random, table: SimulatedTable) -> Row | None:
    rows = (_random_row(rng, table) for _ in range(5))
    return next((row for row in rows if table.takes(row)), None)


def _transaction(rng: random.Random, source: SimulatedSource, *, inserts_only: bool) -> None:
    for _ in range(rng.randrange(1, 14)):
        table = rng.choice(list(source.tables.values()))
        free = _free_row(rng, table)
        if free is not None and (inserts_only or not table.rows or rng.random() < 0.5):
            source.insert(table, free)
        elif inserts_only or not table.rows:
            continue
        elif rng.random() < 0.4:
            source.delete(table, rng.choice(table.rows))
        else:
            old, new = rng.choice(table.rows), _random_row(rng, table)
            # With its own key, or as another row's successor.
            moved = free if free is not None and rng.random() < 0.3 else None
            kept = tuple(o if i in table.key else n for i, (o, n) in enumerate(zip(old, new, strict=True)))
            source.update(table, old, moved or kept)
    source.commit(rng)
    if rng.random() < 0.3:
        source.flush()


def _run(rng: random.Random, source: SimulatedSource, count: int, *, inserts_only: bool = False) -> None:
    for _ in range(count):
        _transaction(rng, source, inserts_only=inserts_only)
    source.flush()


def _linked(lake: SourceLake, table: TableName, layer: str) -> int:
    """The number of files in a table's folder that have a landed file's name."""
    return _named(lake, table, layer, "cycle")


def _named(lake: SourceLake, table: TableName, layer: str, kind: str) -> int:
    key = lake.paths.history(table) if layer == "history" else lake.paths.current(table)
    return len(list(Path(lake.url(key)).glob(f"{kind}-*.parquet")))


def _data_files(lake: SourceLake) -> set[Path]:
    return {*Path(lake.url("")).rglob("*.parquet"), *Path(lake.url("")).rglob(".lp-*")}


def _no_room_for_history(request: LinkRequest, current: RowCommit | None = None) -> RowCommit:
    if current is not None:
        raise NoRoomError("history", "writing a file of it failed", "make room")
    return prepare_links(request)


def _check_all(config: Config, source: SimulatedSource) -> None:
    names = [table.name for table in source.tables]
    check(config, source, names)
    lake = read_lake(config)
    for name, table in source.tables.items():
        assert images_of(lake.history(SOURCE, name), table.version) == table.images, f"history of {name}, seed {SEED}"
        cut_table = lake.cuts[SOURCE].tables[name]
        read = ArrowHistory(SourceLake.open(config.lake, SOURCE), name, cut_table)
        assert read.sum() == cut_table.history_sum, f"sum of {name}, seed {SEED}"


@pytest.fixture
def small_files_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Link files of any size."""
    monkeypatch.setattr(cycle_table, "LINK_BYTES_MIN", 0)  # inside: real files of this size would take minutes


@pytest.mark.usefixtures("small_files_linked")
def test_tables_enter_and_go_on_by_links(no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """A snapshot with changes after it, ranges of every kind, ends inside segments: rows, history and its sum are right."""
    rng = random.Random(SEED)
    source, config = SimulatedSource(tmp_path, _tables()), make_config(tmp_path)
    names = [table.name for table in source.tables]
    for simulated in source.tables.values():
        for _ in range(25):
            row = _free_row(rng, simulated)
            if row is not None:
                simulated.rows.append(row)
    source._remember()
    source.snapshot(names)
    _run(rng, source, 12)
    run_compact(no_spark, config)
    _check_all(config, source)
    lake = SourceLake.open(config.lake, SOURCE)
    entered = {
        (table, layer): _linked(lake, table, layer) for table in source.tables for layer in ("history", "current")
    }
    assert min(entered.values()) >= 1, f"seed {SEED}"
    _run(rng, source, 12)
    inside = sorted(source.states)[-6]
    run_compact(no_spark, config, Lsn(inside + 3))
    check(config, source, names)
    run_compact(no_spark, config)
    _check_all(config, source)
    _run(rng, source, 6, inserts_only=True)
    run_compact(no_spark, config)
    _check_all(config, source)
    for (table, layer), before in entered.items():
        assert _linked(lake, table, layer) > before, f"{table}, {layer}, seed {SEED}"


def test_ranges_of_small_files_are_written_without_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of every kind, ends inside segments, several files of many row groups: rows, history and its sum are right.

    No range has a Spark job: not for its rows, nor to find those that go.
    """
    monkeypatch.setattr(links, "ROW_GROUP_ROWS", 3)  # inside: a cycle of so many rows takes minutes to make
    monkeypatch.setattr(links, "ROWS_PER_FILE", 7)  # inside: the same
    rng = random.Random(SEED)
    source, config = SimulatedSource(tmp_path, _tables()), make_config(tmp_path)
    source.snapshot([table.name for table in source.tables])
    _run(rng, source, 6)
    run_compact(spark, config)
    lake = SourceLake.open(config.lake, SOURCE)
    layers = [(table, layer) for table in source.tables for layer in ("history", "current")]
    parts = [_named(lake, *layer, "part") for layer in layers]
    for number in range(4):
        _run(rng, source, 8, inserts_only=number == 3)
        before = jobs_run(spark)
        run_compact(spark, config, Lsn(sorted(source.states)[-4] + 3) if number == 1 else None)
        spent = jobs_run(spark) - before
        assert spent == 0, f"round {number}, seed {SEED}"
        if number != 1:
            _check_all(config, source)
    assert [_named(lake, *layer, "part") for layer in layers] == parts, f"seed {SEED}"
    assert min(_named(lake, *layer, "rows") for layer in layers) > 4, f"seed {SEED}"


PLACES = (
    "cycle.after_intent",
    "apply.after_links",
    "apply.before_commit",
    "apply.after_commit",
    "cycle.after_history",
    "cycle.after_current",
    "cycle.after_tables",
    "cycle.after_sync",
)


def _compact_with_a_crash(rng: random.Random, spark: SparkOnDemand, config: Config) -> str | None:
    """Crash at a random passing of a random place, if there are as many, then compact; return the place of the crash."""
    place, nth, passed = rng.choice(PLACES), rng.randrange(1, 4), 0

    def crash(name: str) -> None:
        nonlocal passed
        passed += name == place
        if name == place and passed == nth:
            raise Crash(place)

    crashed = None
    try:
        with watched(crash):
            run_compact(spark, config)
    except Crash:
        crashed = place
    run_compact(spark, config)
    return crashed


@pytest.mark.usefixtures("small_files_linked")
@pytest.mark.full
@pytest.mark.parametrize("rounds", [3, 30])
def test_a_crash_between_link_and_cut_changes_nothing(no_spark: SparkOnDemand, tmp_path: Path, rounds: int) -> None:
    """After each crash the next compaction finishes the cycle: rows, history, and its sum are those of the source."""
    rng = random.Random(SEED)
    source, config = SimulatedSource(tmp_path, _tables()), make_config(tmp_path)
    source.snapshot([table.name for table in source.tables])
    crashes = []
    for number in range(rounds):
        _run(rng, source, 6, inserts_only=number % 3 == 0)
        crashes.append(_compact_with_a_crash(rng, no_spark, config))
        _check_all(config, source)
    if rounds > len(PLACES):
        assert len({place for place in crashes if place is not None}) > len(PLACES) // 2, f"{crashes}, seed {SEED}"


@pytest.mark.usefixtures("small_files_linked")
def test_current_on_another_file_system_gets_copies(no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """History has a link to each landed file and current a copy; crashes and retention do no more than elsewhere."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, _tables())
    config = policy(tmp_path, cuts_s=0, landing_s=0)
    source.snapshot([table.name for table in source.tables])
    lake = SourceLake.open(config.lake, SOURCE)
    with other_file_system(tmp_path) as other:
        (tmp_path / SOURCE / "current").symlink_to(other)
        for number in range(4):
            _run(rng, source, 6, inserts_only=number == 1)
            _compact_with_a_crash(rng, no_spark, config)
            _check_all(config, source)
        linked = [_linked(lake, table, layer) for table in source.tables for layer in ("history", "current")]
        assert min(linked) > 1, f"{linked}, seed {SEED}"
        assert {place.stat().st_nlink for place in other.rglob("cycle-*.parquet")} == {1}
        maintain(config, SOURCE, no_spark, silent, MaintenanceRequest(now=MUCH_LATER))
        assert not list(other.rglob(".lp-*"))
        _check_all(config, source)


@pytest.mark.usefixtures("small_files_linked")
def test_each_name_of_a_file_goes_on_its_own(no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """The landing, history and current give linked files up in any order, and put small ones together: no row is lost."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, _tables())
    source.snapshot([table.name for table in source.tables])
    orders = [
        policy(tmp_path, cuts_s=0, landing_s=0),
        policy(tmp_path, cuts_s=0, small_files=2),
        policy(tmp_path, landing_s=0),
        policy(tmp_path, cuts_s=0, landing_s=0, small_files=2),
    ]
    rng.shuffle(orders)
    for config in orders:
        _run(rng, source, 6)
        run_compact(no_spark, config)
        _run(rng, source, 6)
        run_compact(no_spark, config)
        maintain(config, SOURCE, no_spark, silent, MaintenanceRequest(now=MUCH_LATER))
        _check_all(config, source)


def test_a_range_whose_history_finds_no_room_leaves_no_file(
    no_spark: SparkOnDemand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Current's files are ready when history's are refused: however often it is tried, both folders are as before."""
    rng = random.Random(SEED)
    source, config = SimulatedSource(tmp_path, _tables()), make_config(tmp_path)
    source.snapshot([table.name for table in source.tables])
    _run(rng, source, 6)
    run_compact(no_spark, config)
    _run(rng, source, 6, inserts_only=True)
    lake = SourceLake.open(config.lake, SOURCE)
    before = _data_files(lake)
    with monkeypatch.context() as patched:
        # inside: a disk that is full for the second of two small files can't be had
        patched.setattr(cycle_table, "prepare_links", _no_room_for_history)
        for _ in range(3):
            with pytest.raises(NoRoomError):
                run_compact(no_spark, config)
            assert _data_files(lake) == before
    run_compact(no_spark, config)
    _check_all(config, source)
