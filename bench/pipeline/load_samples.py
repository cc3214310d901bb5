"""Samples a pipeline under load from outside: its slot, what has landed, and the CPU of its processes.

Starting and stopping it does not belong here (`load_pipeline.py`), nor freshness (`freshness.py`), nor printing (`load.py`).
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench.pipeline.freshness import landing
from bench.pipeline.load_pipeline import NAME, Pipeline
from bench.processes import Tree
from lakeproof.lsn import Lsn

# A position's time is known to this many seconds.
_POSITION_EVERY_S = 0.25
_POSITIONS = """
SELECT pg_current_wal_insert_lsn()::text, confirmed_flush_lsn::text, restart_lsn::text
FROM pg_replication_slots WHERE slot_name = %s
"""


@dataclass(frozen=True)
class Sample:
    """One moment: bytes and seconds behind the end of WAL, WAL kept for the slot, changes landed, CPU by process."""

    time: float
    slot_bytes: int
    slot_s: float
    kept_bytes: int
    landed: int
    cpu_s: Mapping[str, float]


@dataclass
class Sampler:
    """Takes a sample every few seconds until `end`; `trees` are the processes that it reads."""

    pipeline: Pipeline
    trees: Mapping[str, Tree]
    every_s: float
    samples: list[Sample] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._times: list[float] = []
        self._ends: list[int] = []
        self._chain = landing(self.pipeline.lake)
        self._next, self._landed = self._chain.next_number, 0
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        self._thread.start()

    def end(self) -> None:
        """Take no more samples; raises whatever ended the sampling before."""
        self._ended.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        due = time.monotonic()
        try:
            with psycopg.connect(self.pipeline.server.dsn(), autocommit=True) as conn:
                ended = False
                while not ended:
                    # The last sample is of the end.
                    ended = self._ended.wait(_POSITION_EVERY_S)
                    end, flushed, kept = _positions(conn)
                    self._times.append(time.time())
                    self._ends.append(end)
                    if ended or time.monotonic() >= due:
                        self.samples.append(self._sample(end, flushed, kept))
                        due += self.every_s
        except BaseException as failure:  # noqa: BLE001  `end` raises it in the main thread
            self.failure = failure

    def _sample(self, end: int, flushed: int, kept: int) -> Sample:
        # The first time at which WAL ended past what the drain has confirmed: it is behind since then.
        behind = bisect.bisect_right(self._ends, flushed)
        now = self._times[-1]
        for tree in self.trees.values():
            tree.sample()
        self._chain.refresh()
        self._landed += sum(file.rows for manifest in self._chain.manifests(self._next) for file in manifest.files)
        self._next = self._chain.next_number
        return Sample(
            now,
            max(end - flushed, 0),
            now - self._times[behind] if behind < len(self._times) else 0.0,
            end - kept,
            self._landed,
            {name: tree.cpu_s for name, tree in self.trees.items()},
        )


def _positions(conn: psycopg.Connection[Any]) -> tuple[int, int, int]:
    """Return the end of WAL, the position that the drain has confirmed, and the one from which WAL is kept."""
    row = conn.execute(_POSITIONS, [NAME]).fetchone()
    if row is None:
        raise SystemExit(f"the slot {NAME} is gone; see whether the server has invalidated it")
    end, flushed, kept = (int(Lsn.parse(text)) for text in row)
    return end, flushed, kept
