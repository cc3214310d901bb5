"""A compaction on S3 is stopped before and after each of its commits, followed by another one, and wakes up.

A folder's lock ends with its process, so there is nobody to wake: killed ones are in `test_compaction_killed.py`. What has
been sent before the sleep is kept on its way by the proxy, and arrives when the sleeper has been followed.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import TransientError
from lakeproof.lake.delta.log.commits import commit_name, log_files
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.folder import Folder
from tests.support.faults.sleeper import continued, sleeper, stop, wait_until_there
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_source import SimulatedSource
from tests.support.stores.fix_object_store import S3Server
from tests.support.stores.object_proxy import Fault, Hold, Request, object_proxy
from tests.support.workloads.lake_workload import SEED, make_tables, run_transactions

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full]
PROGRAM = "tests.support.spark.compact_process"
TABLES = ("order lines", "bag")
_COMMIT, _CHECKSUM = r"/_delta_log/0{19}\d\.json", r"/_delta_log/0{19}\d\.crc"
# Where the sleeper's request is kept: what it asks for arrives after its follower's.
REQUESTS = {
    "before history": rf"/history/.*{_COMMIT}",
    "after history": rf"/history/.*{_CHECKSUM}",
    "before current": rf"/current/.*{_COMMIT}",
    "after current": rf"/current/.*{_CHECKSUM}",
    "before the cut": r"/cycles/cuts/\d+\.json",
}
STEPS = ("cycle.after_intent", "cycle.after_history", "cycle.after_current:2", "cycle.after_tables", "cycle.after_cut")


@dataclass(frozen=True)
class Lake:
    """A lake on S3 with two tables, whose changes wait for a compaction."""

    place: LakeLocation
    config: Config
    source: SimulatedSource
    rng: random.Random

    def change(self) -> None:
        """Commit and land a few transactions."""
        run_transactions(self.rng, self.source, 6)

    def named(self) -> dict[str, bytes]:
        """The logs' files of all versions up to those that the newest cut names."""
        cut, files = newest_cut(self.source.lake), dict[str, bytes]()
        assert cut is not None
        for table, cut_table in cut.tables.items():
            paths, lake = self.source.lake.paths, self.source.lake
            for key, version in (
                (paths.history(table), cut_table.history_version),
                (paths.current(table), cut_table.current_version),
            ):
                folder = Folder(lake.store, key)
                for name in log_files(folder):
                    if name[:1].isdigit() and int(name[:20]) <= version:
                        files[f"{key}/_delta_log/{name}"] = folder.get(f"_delta_log/{name}")
        return files


@pytest.fixture
def lake(s3_lake: LakeLocation, spark: SparkSession) -> Lake:
    """A first cut, and changes beyond it."""
    rng = random.Random(SEED)
    source = SimulatedSource(s3_lake, [t for t in make_tables() if t.version.table.name in TABLES])
    config = make_config(s3_lake)
    source.snapshot(TABLES)
    begun = Lake(s3_lake, config, source, rng)
    begun.change()
    run_compact(spark, config)
    begun.change()
    return begun


def follow(lake: Lake, spark: SparkSession, process: subprocess.Popen[str]) -> dict[str, bytes]:
    """Stop the sleeper, compact in its place, twice; return what is named then."""
    stop(process)
    with pytest.raises(TransientError, match="another process is writing"):
        run_compact(spark, lake.config)
    # As if half a minute had passed.
    lake.source.lake.store.delete(lake.source.lake.paths.lease_lock)
    run_compact(spark, lake.config)
    check(lake.config, lake.source, list(TABLES))
    lake.change()
    run_compact(spark, lake.config)
    lake.change()
    return lake.named()


def woken(
    lake: Lake, spark: SparkSession, process: subprocess.Popen[str], named: dict[str, bytes], *, finished: bool = False
) -> None:
    """The sleeper ends by itself, what was named is as it was, and the lake goes on; one that had `finished` may say so."""
    output = continued(process)
    if not finished or process.returncode:
        assert process.returncode == TransientError.exit_status, output
        assert re.search("followed by epoch|another process|someone else", output), output
    assert {name: data for name, data in lake.named().items() if name in named} == named
    for name, data in lake.named().items():
        if name.endswith(".crc"):
            folder, _, file = name.partition("/_delta_log/")
            commit = Folder(lake.source.lake.store, folder).get(commit_name(int(file[:20])))
            assert json.loads(data)["txnId"].encode() in commit, name
    run_compact(spark, lake.config)
    check(lake.config, lake.source, list(TABLES))
    cut = newest_cut(lake.source.lake)
    assert cut is not None
    assert (cut.position, cut.held) == (lake.source.chain.end, {})
    assert {TableName("app", name) for name in TABLES} == set(cut.tables)


@pytest.mark.parametrize("place", REQUESTS)
def test_a_request_that_slept_on_its_way_changes_nothing(
    lake: Lake, spark: SparkSession, s3_server: S3Server, place: str
) -> None:
    """The commit, the checksum file after it, or the cut comes when another one has written in its place."""
    pattern, hold = re.compile(REQUESTS[place]), Hold()

    def is_kept(request: Request) -> bool:
        return request.method == "PUT" and pattern.search(request.path) is not None

    with object_proxy(s3_server.port) as proxy:
        proxy.faults.append(Fault(is_kept, hold=hold))
        with sleeper(PROGRAM, lake.place, proxy.endpoint) as process:
            wait_until_there(process, hold.reached.is_set)
            named = follow(lake, spark, process)
            hold.released.set()
            woken(lake, spark, process, named)


@pytest.mark.parametrize("step", STEPS)
def test_a_compaction_that_slept_between_two_commits_ends_by_the_fence(
    lake: Lake, spark: SparkSession, s3_server: S3Server, tmp_path: Path, step: str
) -> None:
    """It looks at the lease before each commit."""
    here = tmp_path / "here"
    with sleeper(PROGRAM, lake.place, s3_server.endpoint, failpoint=f"{step}@hold:{here}") as process:
        wait_until_there(process, here.exists)
        named = follow(lake, spark, process)
        here.unlink()
        # Its cut was the last thing it had to write.
        woken(lake, spark, process, named, finished=step == "cycle.after_cut")
