"""A first compaction whose process is killed again and again ends all the same: each kill loses a few tables at most.

Delta's commits are kept in this process by a stand-in (`tests.crashing_delta`); that a process which is killed leaves no
more behind than one that stops is shown in `test_compaction_killed.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeproof.lake.cycle import apply_cycle
from lakeproof.lake.cycle import steps as cycle
from lakeproof.lake.cycle import table as cycle_table
from lakeproof.lake.records.store import newest_cut
from lakeproof.schema import Identity
from tests.crashing_delta import StandIn
from tests.lake_steps import make_config, run_compact
from tests.simulated_rows import canonical, schema
from tests.simulated_source import SimulatedSource, SimulatedTable

_TABLES = 20
_COPIES = 3
# What a process lives for: it would never come to the end of a cycle that takes all.
_LIVES = 7


class Killed(BaseException):
    """The process is gone."""


def test_a_first_compaction_ends_although_each_process_lives_for_seven_tables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process makes what one cycle takes, at least; no table is made more often than one cycle was interrupted."""
    columns = {"id": "int8", "v": "text"}
    names = [f"t{number:02d}" for number in range(_TABLES)]
    tables = [SimulatedTable(schema(n, columns, ("id",), Identity.DEFAULT, 900 + i)) for i, n in enumerate(names)]
    source, lake = SimulatedSource(tmp_path, tables), StandIn(random.Random(1))
    lake.chance = 0.0
    written, lives = Counter[str](), list[None]()

    def write_table(session: Any, context: Any, task: Any, _here: Any) -> Any:
        if task.entry is not None:
            if not lives:
                raise Killed
            lives.pop()
            written[task.table.name] += 1
        return lake.write_table(session, context, task)

    # inside: without Spark and Delta, and a process that is killed in the middle
    monkeypatch.setattr(apply_cycle, "write_table", write_table)
    monkeypatch.setattr(cycle, "sync_commits", lambda *_: None)  # inside: the same
    spark: Any = SimpleNamespace(
        newSession=lambda: None, sparkContext=SimpleNamespace(_gateway=None, master="local[2]")
    )
    monkeypatch.setattr("lakeproof.commands.compact.at_work", lambda *_: nullcontext())  # inside: the same
    for name in ("refuse_too_large", "fit_table"):
        monkeypatch.setattr(cycle_table, name, lambda *_: None)  # inside: the same
    config = make_config(tmp_path, engine="spark", cycle_copies=_COPIES)
    for name in names:
        source.insert(source.table(name), (1, "a"))
    source.commit(random.Random(1))
    source.flush()
    source.snapshot(names)
    for name in names:
        source.insert(source.table(name), (2, "b"))
    source.commit(random.Random(1))
    source.flush()
    readable = []
    for _ in range(_TABLES):
        lives[:] = [None] * _LIVES
        try:
            run_compact(spark, config)
        except Killed:
            cut = newest_cut(source.lake)
            readable.append(0 if cut is None else len(cut.tables))
        else:
            break
    cut = newest_cut(source.lake)
    assert cut is not None
    assert len(cut.tables) == _TABLES
    assert not cut.held
    assert readable[0] == 2 * _COPIES, "the first tables could be read although the first process did not end"
    assert max(written[name] for name in names) == 2
    state = source.state_at(cut.position)
    for table, position in cut.tables.items():
        rows = Counter(canonical(row) for row in lake.current[table].versions[position.current_version][1].items())
        assert rows == state[table], table
