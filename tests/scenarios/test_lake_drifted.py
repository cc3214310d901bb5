"""A lake that lacks, keeps, doubles or moves a row: the fault is reported at its key's next change.

Seen once: a partition of another identity sent old keys of NULLs, which met no row, and nobody knew until a proof. Both ways
of committing are held against each other in `tests/properties/cycles/test_ways_to_write.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from lakeproof.catalog.differences import Difference
from lakeproof.catalog.fingerprint import Fingerprint, PublicationFacts, TableFacts
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.rows.correction import NULL_KEY
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.schema import Identity
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SOURCE, Event, SimulatedSource, SimulatedTable

RNG = random.Random(1)
COLUMNS = {"id": "int4", "v": "text"}
Act = Callable[[SimulatedSource, SimulatedTable], None]


def _row(number: int, text: str = "") -> tuple[int, str]:
    return (number, text or f"v{number}")


def _lost_insert(source: SimulatedSource, table: SimulatedTable) -> None:
    source.insert(table, _row(50), lost=True)


def _lost_delete(source: SimulatedSource, table: SimulatedTable) -> None:
    source.delete(table, _row(1), lost=True)


def _lost_both(source: SimulatedSource, table: SimulatedTable) -> None:
    _lost_insert(source, table)
    _lost_delete(source, table)


def _nothing(_source: SimulatedSource, _table: SimulatedTable) -> None:
    pass


def _update_it(source: SimulatedSource, table: SimulatedTable) -> None:
    source.update(table, _row(50), _row(50, "new"))


def _delete_it(source: SimulatedSource, table: SimulatedTable) -> None:
    source.delete(table, _row(50))


def _move_it(source: SimulatedSource, table: SimulatedTable) -> None:
    source.update(table, _row(50), _row(51))


def _insert_again(source: SimulatedSource, table: SimulatedTable) -> None:
    source.insert(table, _row(1, "again"))
    source.update(table, _row(2), _row(2, "beside it"))


def _move_there(source: SimulatedSource, table: SimulatedTable) -> None:
    source.update(table, _row(3), _row(1))


def _both(source: SimulatedSource, table: SimulatedTable) -> None:
    """Keep the number of rows right, but not the rows."""
    source.insert(table, _row(1, "again"))
    source.update(table, _row(50), _row(50, "new"))


def _null_key(source: SimulatedSource, table: SimulatedTable) -> None:
    table.remove(_row(2))
    source._emit(table, Event("delete", (None, None)))


def _moves_and_swaps(source: SimulatedSource, table: SimulatedTable) -> None:
    """Nothing of this is a drift: a key moved and used again, an old key sent for nothing, a row that comes and goes."""
    source.update(table, _row(2), _row(60))
    source.insert(table, _row(2, "another"))
    source._emit(table, Event("before", (3, None)))
    source.update(table, _row(3), _row(3, "new"))
    source.insert(table, _row(61))
    source.update(table, _row(61), _row(62))
    source.delete(table, _row(62))


def _truncated(source: SimulatedSource, table: SimulatedTable) -> None:
    """Earlier rows do not matter."""
    source.truncate(table)
    source.insert(table, _row(1))
    source.update(table, _row(1), _row(1, "new"))


def _deleted_after_truncate(source: SimulatedSource, table: SimulatedTable) -> None:
    source.truncate(table)
    source._emit(table, Event("delete", (5, None)))


# A silent corruption, then a change that reveals it; all but the last three are reported.
CASES: Mapping[str, tuple[Act, Act]] = {
    "updated": (_lost_insert, _update_it),
    "deleted": (_lost_insert, _delete_it),
    "moved": (_lost_insert, _move_it),
    "inserted": (_lost_delete, _insert_again),
    "moved there": (_lost_delete, _move_there),
    "both": (_lost_both, _both),
    "null key": (_nothing, _null_key),
    "after truncate": (_nothing, _deleted_after_truncate),
    "configured": (_lost_insert, _update_it),
    "configured inserted": (_lost_delete, _move_there),
    "bag": (_lost_insert, _delete_it),
    "good": (_nothing, _moves_and_swaps),
    "truncated": (_lost_both, _truncated),
    "configured good": (_nothing, _move_there),
}
GOOD = {"good", "truncated", "configured good"}
ROADS = ["memory", "by spark", *(pytest.param(road, marks=pytest.mark.full) for road in ("spark", "entering"))]
# Of each kind of table, and of each sort of drift.
SOME = ("updated", "moved there", "null key", "configured", "bag", "good")
# Where a key that is free is moved to.
FREE = {("configured good", 1)}


def _tables(names: Collection[str] = CASES) -> list[SimulatedTable]:
    result = []
    for oid, name in enumerate(names, start=1):
        full = name == "bag" or name.startswith("configured")
        identity = Identity.FULL if full else Identity.DEFAULT
        result.append(SimulatedTable(schema(name, COLUMNS, () if name == "bag" else ("id",), identity, oid)))
    return result


def _begun(lake: Path, names: Collection[str]) -> SimulatedSource:
    """Nine rows in each table, and a snapshot of them."""
    source = SimulatedSource(lake, _tables(names))
    for table in source.tables.values():
        table.rows = [_row(n) for n in range(1, 10) if (table.version.table.name, n) not in FREE]
    source._remember()
    source.snapshot(list(names))
    return source


def _changed(source: SimulatedSource) -> None:
    for which in (0, 1):
        for table in source.tables.values():
            CASES[table.version.table.name][which](source, table)
        source.commit(RNG)
    source.flush()


@pytest.mark.full
@pytest.mark.parametrize("names", [SOME, pytest.param(tuple(CASES), marks=pytest.mark.full)], ids=["some", "all"])
@pytest.mark.parametrize("road", ["memory", "by spark", pytest.param("entering", marks=pytest.mark.full)])
def test_a_drift_is_reported_before_any_commit_and_a_snapshot_heals_it(
    spark: SparkSession, tmp_path: Path, road: str, names: tuple[str, ...]
) -> None:
    """All roads (this process, Spark, since a first snapshot) hold the same tables."""
    engine: Literal["auto", "spark"] = "auto" if road in {"memory", "entering"} else "spark"
    source, config = _begun(tmp_path, names), make_config(tmp_path, engine=engine)
    if road != "entering":
        run_compact(spark, config)
    _changed(source)
    run_compact(spark, config)
    cut = newest_cut(source.lake)
    assert cut is not None
    held = {t.name: h.reason for t, h in cut.held.items()}
    assert held.keys() == set(names) - GOOD, held
    assert held["null key"] == NULL_KEY
    for table, position in cut.tables.items():
        places = (source.lake.paths.history(table), source.lake.paths.current(table))
        actual = tuple(newest_version(source.lake.url(place)) for place in places)
        assert actual == (position.history_version, position.current_version), table
    check(config, source, sorted(GOOD & set(names)))
    if road == "memory":
        source.snapshot(sorted(held))
        run_compact(spark, config)
        assert not read_lake(config).cuts[SOURCE].held
        check(config, source, list(names))


def test_where_an_operation_is_not_published_the_source_changes_unseen(no_spark: SparkOnDemand, tmp_path: Path) -> None:
    """A row that was deleted without a word and comes again is no drift: that is what the publication asks for."""
    names = ("inserted", "updated")
    tables = [t for t in _tables() if t.version.table.name in names]
    source, config = SimulatedSource(tmp_path, tables), make_config(tmp_path)
    for table in tables:
        table.rows = [_row(n) for n in range(1, 10)]
    source._remember()
    source.snapshot(names)
    publication = PublicationFacts("shop", 10, "iut", True, False, "n", "1")
    existing = Fingerprint(
        {
            oid: TableFacts(oid, table, "r", "d", "[]", 1, "[]", "[]", '[[7, "r1", null, null, []]]', 2)
            for table, oid in ((t.version.table, t.version.oid) for t in tables)
        },
        {},
        {7: publication},
    )
    source.flush()
    source.notice("inserted", Difference.FILE, source.chain.end, source.chain.end, fingerprint=existing)
    run_compact(no_spark, config)
    for which in (0, 1):
        for table in tables:
            CASES[table.version.table.name][which](source, table)
        source.commit(RNG)
    source.flush()
    run_compact(no_spark, config)
    assert not read_lake(config).cuts[SOURCE].held
    check(config, source, list(names))
