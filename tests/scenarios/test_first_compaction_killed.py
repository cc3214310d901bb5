"""A first compaction whose process is killed again and again ends all the same: each kill loses a few tables at most.

That a process which is killed leaves no more behind than one that stops is shown in `test_compaction_killed.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

from lakeproof.failpoints import watched
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.schema import Identity
from tests.support.faults.crashes import Crash
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable

_TABLES = 20
_COPIES = 3
# What a process lives for: it would never come to the end of a cycle that takes all.
_LIVES = 7


def test_a_first_compaction_ends_although_each_process_lives_for_seven_tables_only(
    tmp_path: Path, no_spark: SparkOnDemand
) -> None:
    """Each process makes what one cycle takes, at least; a kill costs the tables of one cycle, and no others."""
    columns = {"id": "int8", "v": "text"}
    names = [f"t{number:02d}" for number in range(_TABLES)]
    tables = [SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate(names)]
    source, config = SimulatedSource(tmp_path, tables), make_config(tmp_path, cycle_copies=_COPIES)
    for name in names:
        source.insert(source.table(name), (1, "a"))
    source.commit(random.Random(1))
    source.flush()
    source.snapshot(names)
    # A table that has entered is counted again if it has changes, so only those have them that enter last.
    for name in names[-_COPIES:]:
        source.insert(source.table(name), (2, "b"))
    source.commit(random.Random(1))
    source.flush()
    left, begun = 0, 0

    def passing(place: str) -> None:
        nonlocal left, begun
        if place == "cycle.after_history" and _entered(source) < _TABLES:
            if not left:
                raise Crash
            left, begun = left - 1, begun + 1

    readable = []
    for _ in range(_TABLES):
        left = _LIVES
        try:
            with watched(passing):
                run_compact(no_spark, config)
        except Crash:
            readable.append(_entered(source))
        else:
            break
    assert _entered(source) == _TABLES
    check(config, source, names)
    assert readable[0] == 2 * _COPIES, "the first tables could be read although the first process did not end"
    assert begun <= _TABLES + _COPIES * len(readable)


def _entered(source: SimulatedSource) -> int:
    """The number of tables of the newest cut, in which none is held."""
    cut = newest_cut(source.lake)
    assert cut is None or not cut.held
    return 0 if cut is None else len(cut.tables)
