"""A refresh of a view on S3 is stopped around its commit and its cut, followed by another one, and wakes up.

A compaction's sleep is in `test_compaction_sleeps_on_s3.py`.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.refresh import refresh
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import TransientError
from lakeproof.failpoints import watched
from lakeproof.lake.delta.log.commits import commit_name, log_files
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.views.cuts import ViewCut, cuts_in_order, newest_view_cut
from lakeproof.storage.folder import Folder
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from tests.support.faults.sleeper import continued, sleeper, stop, wait_until_there
from tests.support.lake.lake_steps import check, run_compact
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.spark.refresh_process import TABLE, VIEW, with_view
from tests.support.stores.fix_object_store import S3Server
from tests.support.stores.object_proxy import Fault, Hold, Request, object_proxy
from tests.support.workloads.lake_workload import SEED, make_tables, run_transactions

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full]
PROGRAM = "tests.support.spark.refresh_process"
SQL = "SELECT id, v FROM t WHERE id % 2 = 0"
# Where the sleeper's request is kept: what it asks for arrives after its follower's.
REQUESTS = {
    "before the commit": rf"/views/{VIEW}/_delta_log/0{{19}}\d\.json",
    "after the commit": rf"/views/{VIEW}/_delta_log/0{{19}}\d\.crc",
    "before the cut": r"/views/cuts/\d+\.json",
}
STEPS = ("apply.before_commit", "cycle.after_tables", "cycle.after_cut")
# Before the view's first commit there is no version to which a follower could restore.
FIRST_STEPS = ("cycle.after_tables",)


@dataclass(frozen=True)
class Lake:
    """A lake on S3 whose one table has changed since its view was refreshed, if it was."""

    place: LakeLocation
    config: Config
    source: SimulatedSource
    rng: random.Random
    spark: SparkSession
    file: Path

    @property
    def store(self) -> Store:
        """The lake's store."""
        return self.source.lake.store

    def change(self) -> None:
        """Bring transactions into the lake; the view's rows are not the same any more."""
        run_transactions(self.rng, self.source, 8)
        run_compact(self.spark, self.config)

    def refresh(self) -> None:
        """Refresh the view in this process."""
        refresh(self.config, None, self.spark)

    def named(self) -> dict[str, bytes]:
        """The files of the view's log up to the version that its newest cut names."""
        cut = newest_view_cut(self.store, VIEW)
        assert cut is not None
        folder = Folder(self.store, LakePaths.view(VIEW))
        return {
            name: folder.get(f"_delta_log/{name}")
            for name in log_files(folder)
            if name[:1].isdigit() and int(name[:20]) <= cut.delta_version
        }

    def is_its_query_at(self, cut: ViewCut) -> bool:
        """True if the version that a view's cut names has the query's rows at the cut of the source that it names."""
        table = open_lake(self.spark, self.config, int(cut.sources[SOURCE])).table(SOURCE, TABLE)
        expected = Counter(tuple(row) for row in table.where("id % 2 = 0").select("id", "v").collect())
        url = self.store.url(LakePaths.view(VIEW))
        rows = self.spark.read.format("delta").option("versionAsOf", cut.delta_version).load(url).select("id", "v")
        return Counter(tuple(row) for row in rows.collect()) == expected


@pytest.fixture
def lake(s3_lake: LakeLocation, spark: SparkSession, tmp_path: Path) -> Lake:
    """A table in the lake, and no view yet."""
    file = tmp_path / "even.sql"
    file.write_text(SQL, encoding="utf-8")
    source = SimulatedSource(s3_lake, [t for t in make_tables() if t.version.table == TABLE])
    source.snapshot([TABLE.name])
    begun = Lake(s3_lake, with_view(s3_lake, file), source, random.Random(SEED), spark, file)
    begun.change()
    return begun


def follow(lake: Lake, process: subprocess.Popen[str]) -> dict[str, bytes]:
    """Stop the sleeper, refresh in its place, twice; return what is named then."""
    stop(process)
    with pytest.raises(TransientError, match="another process is refreshing"):
        lake.refresh()
    # As if half a minute had passed.
    lake.store.delete(LakePaths.refresh_lock())
    for _ in range(2):
        lake.change()
        lake.refresh()
    return lake.named()


def woken(lake: Lake, process: subprocess.Popen[str], named: dict[str, bytes]) -> None:
    """The sleeper ends by itself, what was named is as it was, each cut is its query's answer, and the view goes on."""
    output = continued(process)
    assert process.returncode in {0, TransientError.exit_status}, output
    assert {name: data for name, data in lake.named().items() if name in named} == named
    lake.change()
    lake.refresh()
    folder = Folder(lake.store, LakePaths.view(VIEW))
    for name, data in lake.named().items():
        if name.endswith(".crc"):
            commit = folder.get(commit_name(int(name[:20])))
            assert json.loads(data)["txnId"].encode() in commit, name
    cuts = list(cuts_in_order(lake.store))
    assert len(cuts) >= 3
    wrong = [int(cut.number) for cut in cuts if not lake.is_its_query_at(cut)]
    assert wrong == [], f"{output}, seed {SEED}"
    cut = open_lake(lake.spark, lake.config).cuts[SOURCE]
    assert (cut.position, cut.number) == (lake.source.chain.end, cuts[-1].sources[SOURCE])
    check(lake.config, lake.source, [TABLE.name])


@pytest.mark.parametrize("place", REQUESTS)
def test_a_request_that_slept_on_its_way_changes_nothing(lake: Lake, s3_server: S3Server, place: str) -> None:
    """The commit, its checksum file or the cut comes when another refresh has written in its place."""
    lake.refresh()
    lake.change()
    pattern, hold = re.compile(REQUESTS[place]), Hold()

    def is_kept(request: Request) -> bool:
        return request.method == "PUT" and pattern.search(request.path) is not None

    with object_proxy(s3_server.port) as proxy:
        proxy.faults.append(Fault(is_kept, hold=hold))
        with sleeper(PROGRAM, lake.place, proxy.endpoint, str(lake.file)) as process:
            wait_until_there(process, hold.reached.is_set)
            named = follow(lake, process)
            hold.released.set()
            woken(lake, process, named)


@pytest.mark.parametrize(
    ("step", "first"), [*((step, False) for step in STEPS), *((step, True) for step in FIRST_STEPS)]
)
def test_a_refresh_that_slept_around_its_commit_overwrites_nothing(
    lake: Lake, s3_server: S3Server, tmp_path: Path, step: str, *, first: bool
) -> None:
    """Before and after its commit and its cut; `first`: the view was never refreshed before."""
    if not first:
        lake.refresh()
        lake.change()
    here = tmp_path / "here"
    failpoint = f"{step}@hold:{here}"
    with sleeper(PROGRAM, lake.place, s3_server.endpoint, str(lake.file), failpoint=failpoint) as process:
        wait_until_there(process, here.exists)
        named = follow(lake, process)
        here.unlink()
        woken(lake, process, named)


def test_a_refresh_whose_lock_was_lost_puts_no_cut(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """It has committed; another one may have made the same version since, of other rows, so its cut is not put."""

    def lose_lock(name: str) -> None:
        if name == "cycle.after_tables":
            lake.store.delete(LakePaths.refresh_lock())
            # Its next renewal finds that the lock is another's.
            deadline = time.monotonic() + 60
            while "another process has taken its lock" not in caplog.text:
                assert time.monotonic() < deadline, "the loss was not noticed"
                time.sleep(0.1)

    with watched(lose_lock), pytest.raises(TransientError, match="not renewed in time"):
        lake.refresh()
    assert newest_view_cut(lake.store, VIEW) is None
    lake.change()
    lake.refresh()
    (cut,) = cuts_in_order(lake.store)
    assert lake.is_its_query_at(cut)
    check(lake.config, lake.source, [TABLE.name])
