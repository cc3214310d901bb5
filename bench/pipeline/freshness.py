"""Reckons freshness from the landing and the cuts: the time from a commit in PostgreSQL to the cut that shows it.

Running a pipeline does not belong here, nor reading as fresh as the landing (`bench.pipeline.fresh_reads`). The commit's
time is PostgreSQL's own, the cut's is the time at which it was written, both on the clock of one machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.lake.records.store import newest_number, read_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import CycleNumber
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

Seconds = npt.NDArray[np.float64]


def freshness(lake: SourceLake, since: float, until: float) -> tuple[Seconds, Seconds]:
    """Return, for each change committed in that time, the commit's time and the seconds to the first cut at or past it."""
    positions, shown = cuts(lake)
    commits, times = landed_commits(lake, since, until)
    return times, shown[np.searchsorted(positions, commits)] - times


def landed_commits(lake: SourceLake, since: float, until: float) -> tuple[npt.NDArray[np.int64], Seconds]:
    """Return, for each change committed in that time, the commit's position and its time."""
    chain = landing(lake)
    commits, seconds = [np.empty(0, np.int64)], [np.empty(0)]
    for manifest in chain.manifests():
        for file in manifest.files:
            url = lake.url(f"{lake.paths.landing(chain.incarnation)}/{file.path}")
            rows = pq.read_table(url, columns=["_lp_lsn", "_lp_commit_time"])
            times = pc.cast(pc.cast(rows.column(1), "timestamp[us]"), "int64").to_numpy() / 1e6
            inside = (times >= since) & (times <= until)
            commits.append(rows.column(0).to_numpy()[inside])
            seconds.append(times[inside])
    return np.concatenate(commits), np.concatenate(seconds)


def cuts(lake: SourceLake) -> tuple[npt.NDArray[np.int64], Seconds]:
    """Return the positions of all cuts, and the times at which they were written, oldest first."""
    numbers = range(1, newest_number(lake.store, lake.paths.cuts) + 1)
    documents = [read_cut(lake, CycleNumber(number)) for number in numbers]
    positions = np.array([int(cut.position) for cut in documents], dtype=np.int64)
    return positions, np.array([time_of(cut.created_at).timestamp() for cut in documents])


def landing(lake: SourceLake) -> Chain:
    """Return the newest landing; raises SystemExit if there is none."""
    chain = Chain.open_newest(lake)
    if chain is None:
        raise SystemExit("there is no landing; bootstrap the source first")
    return chain
