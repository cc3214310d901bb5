"""The process of a run loads the assets of its job, and a code server all of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.code_pointer import FileCodePointer
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

from lakeproof.config.load import load
from orchestration.build import build
from orchestration.location import RUN_JOB, own_job
from tests.support.shell.sample import write_sample

ROOT = Path(__file__).resolve().parents[3]
_DEFINITIONS = ROOT / "orchestration" / "definitions.py"
_LOADED = """
import json, sys
from dagster._core.code_pointer import FileCodePointer
defs = FileCodePointer(sys.argv[1], "defs", None).load_target()
print(json.dumps(sorted({key.path[0] for a in defs.assets for key in (a.keys if hasattr(a, "keys") else [a.key])})))
"""


def _report(job: ReconstructableJob, answers: Queue[Any]) -> None:
    del job
    answers.put(own_job())


def _layers(definitions: dg.Definitions) -> set[str]:
    assets = [asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)]
    return {key.path[0] for asset in assets for key in asset.keys}


def test_a_process_that_dagster_spawns_for_a_run_knows_its_job() -> None:
    """As Dagster's default launcher does it: the job is an argument of the process."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    job = ReconstructableJob(ReconstructableRepository(FileCodePointer(str(_DEFINITIONS), "defs", None)), "shop_drain")
    process = spawn.Process(target=_report, args=(job, answers))
    process.start()
    assert answers.get(timeout=300) == "shop_drain"
    process.join()
    assert own_job({}) is None
    assert own_job({}, ["words", object()]) is None


def test_the_file_that_a_run_loads_makes_the_assets_of_its_job_alone(tmp_path: Path) -> None:
    """A container names the job in its environment; without a name the file has everything."""
    layers_of = {}
    for job in ("", "shop_drain"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _LOADED, str(_DEFINITIONS)],
            env={**os.environ, "LAKEPROOF_CONFIG": str(write_sample(tmp_path)), **({RUN_JOB: job} if job else {})},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        layers_of[job] = json.loads(done.stdout.splitlines()[-1])
    assert layers_of["shop_drain"] == ["changes"]
    assert {"postgres", "snapshot", "changes", "history", "current"} <= {*layers_of[""]}


def test_every_job_has_what_it_selects_in_the_process_of_its_run(tmp_path: Path) -> None:
    """The same steps with the same options as in the whole location; a job of somebody else's has the whole location."""
    config = load(write_sample(tmp_path))
    whole = build(config)
    jobs = [str(job.name) for job in whole.jobs or ()]
    assert len(jobs) > 10
    for name in jobs:
        alone, expected = build(config, job=name).resolve_job_def(name), whole.resolve_job_def(name)
        assert {node.name for node in alone.nodes} == {node.name for node in expected.nodes}, name
        assert alone.asset_layer.selected_asset_keys == expected.asset_layer.selected_asset_keys, name
        assert alone.tags == expected.tags, name
    assert _layers(build(config, job="__ASSET_JOB")) == _layers(whole)


@pytest.mark.parametrize(("job", "layers"), [("shop_slot", {"slots"}), ("shop_compaction", {"history", "current"})])
def test_a_run_makes_no_asset_of_another_job(tmp_path: Path, job: str, layers: set[str]) -> None:
    """A source has thousands of them, and a run would wait for all."""
    assert _layers(build(load(write_sample(tmp_path)), job=job)) == layers
