"""A stand-in for Spark and Delta that crashes by chance between the steps of a cycle.

The claims about the lake that is left belong to `tests/scenarios/test_cycle_crashes.py`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from lakeproof.change_counts import ChangeCounts
from lakeproof.lake.cycle.task import Carried, CycleContext, TableResult, TableTask, Written
from lakeproof.lake.delta.protocol import metadata_of, protocol_for
from lakeproof.lake.records.documents import CutTable
from lakeproof.landing.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName

State: TypeAlias = dict[int, str]


class Crash(BaseException):
    """The process is gone: no handler of an Exception may see it."""


@dataclass
class Log:
    """One table's versions: the number of the cycle that made each, and what the table holds in it.

    A commit that no cut names is taken back by the cycle itself: a RESTORE in the log, which is taken over from there.
    """

    layer: str
    table: TableName
    versions: list[tuple[CycleNumber | None, Any]] = field(default_factory=list)

    def held_at(self, context: CycleContext, version: int) -> Any:
        """Return what the table holds at a version, which the cycle goes on from."""
        folder = self._folder(context)
        if not (folder / f"{0:020d}.json").exists():
            # A first commit that no cut names was removed.
            self.versions.clear()
        while len(self.versions) <= version:
            lines = (folder / f"{len(self.versions):020d}.json").read_text(encoding="utf-8").splitlines()
            info = json.loads(lines[0])["commitInfo"]
            assert info["operation"] == "RESTORE"
            self.versions.append((None, self.versions[int(info["operationParameters"]["version"])][1]))
        return self.versions[version][1]

    def commit(self, context: CycleContext, expected: int, value: Any) -> int:
        """The version made; what an earlier attempt had made was taken back, and was the same."""
        context.lease.check()
        number, earlier = context.intent.number, list(self.versions)
        if expected >= 0:
            self.held_at(context, expected)
        else:
            self.versions.clear()
        self._write(context, expected + 1)
        assert all(held == value for n, held in earlier if n == number), "a second attempt computed something else"
        assert len(self.versions) == expected + 1, "it is made on the log's end"
        self.versions.append((number, value))
        return expected + 1

    def _folder(self, context: CycleContext) -> Path:
        lake = context.lease.lake
        key = lake.paths.history(self.table) if self.layer == "history" else lake.paths.current(self.table)
        return Path(lake.url(key)) / "_delta_log"

    def _write(self, context: CycleContext, version: int) -> None:
        ours, folder = context.commit_info(self.layer, self.table), self._folder(context)
        folder.mkdir(parents=True, exist_ok=True)
        metadata = metadata_of([], {})
        lines: list[dict[str, Any]] = (
            [] if version else [{"protocol": protocol_for(metadata, None)}, {"metaData": metadata}]
        )
        lines += [
            {"txn": {"appId": ours.app_id, "version": ours.number}},
            {"add": {"path": f"{version}.parquet", "size": 0, "dataChange": True}},
        ]
        (folder.parent / f"{version}.parquet").touch()
        text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
        with (folder / f"{version:020d}.json").open("x", encoding="utf-8") as file:
            file.write(text)


@dataclass
class StandIn:
    """A stand-in for Spark and Delta; it crashes by chance between its steps, and at the cycle's failpoints."""

    rng: random.Random
    history: dict[TableName, Log] = field(default_factory=dict)
    current: dict[TableName, Log] = field(default_factory=dict)
    crashes: Counter[str] = field(default_factory=Counter)
    dead: list[tuple[CycleContext, TableTask]] = field(default_factory=list)
    chance: float = 0.12

    def step(self, name: str) -> None:
        """Perhaps the last thing that this process does."""
        if self.rng.random() < self.chance:
            self.crashes[name] += 1
            raise Crash(name)

    def write_table(self, _session: None, context: CycleContext, task: TableTask, _here: object = None) -> TableResult:
        """History, then current, as a cycle writes them."""
        before, end = task.before, context.intent.end_lsn
        self.step("before history")
        if task.entry is None:
            assert before is not None
            start, state = context.intent.start_lsn, self.current[task.table].held_at(context, before.current_version)
            pieces = list(task.files)
        else:
            start = task.entry.consistent_point
            state = _snapshot(context, task)
            pieces = list(slices(context.chain, start, end, task.table))
        events = list(_events(pieces, start, end))
        if task.entry is None and not events:
            assert before is not None
            return Carried(self._at(context, task, before.history_version, before.current_version))
        self.dead.append((context, task))
        versions = (-1, -1) if before is None else (before.history_version, before.current_version)
        log = self.history.setdefault(task.table, Log("history", task.table))
        past = log.held_at(context, versions[0]) if versions[0] >= 0 else ()
        history = log.commit(context, versions[0], (*past, *events))
        self.step("after history")
        log = self.current.setdefault(task.table, Log("current", task.table))
        current = log.commit(context, versions[1], _fold(state, events))
        self.step("after current")
        return Written(self._at(context, task, history, current), ChangeCounts(), 0, 0)

    def _at(self, context: CycleContext, task: TableTask, history: int, current: int) -> CutTable:
        before, incarnation = task.before, context.intent.incarnation
        if task.entry is not None:
            point = task.entry.consistent_point
        else:
            assert before is not None
            point = before.snapshot_lsn
        return CutTable(context.intent.end_lsn, point, history, current, task.version, incarnation, incarnation)


def _snapshot(context: CycleContext, task: TableTask) -> State:
    assert task.entry is not None
    assert task.entry.key is not None
    folder = context.lease.lake.url(task.entry.key)
    return {
        row["id"]: row["v"]
        for chunk in task.entry.table.chunks
        for row in pq.read_table(f"{folder}/{chunk.path}").to_pylist()
    }


def _events(pieces: list[Slice], start: Lsn, end: Lsn) -> Iterator[tuple[Any, ...]]:
    for piece in sorted(pieces, key=lambda p: p.number):
        for row in sorted(pq.read_table(piece.url).to_pylist(), key=lambda r: int(r["_lp_ord"])):
            if int(start) < row["_lp_lsn"] <= int(end):
                yield row["_lp_lsn"], row["_lp_ord"], row["_lp_op"], row["id"], row["v"]


def _fold(state: State, events: list[tuple[Any, ...]]) -> State:
    rows = dict(state)
    for _, _, op, key, value in events:
        if op == "truncate":
            rows.clear()
        elif op in ("before", "delete"):
            del rows[key]
        else:
            rows[key] = value
    return rows
