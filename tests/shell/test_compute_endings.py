"""The ends of a platform's job without a result: it could not start, was killed, or failed, in the platform's own words.

Jobs that end well, and what a run shows of them, are in `test_compute_platforms.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakeproof.config.load import load
from resources.compute.launchers import Ending, Job
from resources.compute.resource import launcher_of
from tests.fix_platforms import section_of
from tests.shell.platforms import Platform, container

NAMES = ("kubernetes", "emr_serverless", "databricks")
SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")
MAIN = "main"


def started(folder: Path, name: str) -> Job:
    """A job on a platform."""
    path = folder / "lakeproof.yaml"
    section = section_of(folder, name)
    path.write_text(f"lake: lake\nsources:\n  shop: {{dsn: dbname=x, tables: [public.t]}}\n{section}", encoding="utf-8")
    launcher = launcher_of(load(path))
    assert launcher is not None
    return launcher.start(["compact", "shop"])


def ending_of(job: Job, looks: int = 50) -> Ending:
    """The end of a job."""
    for _ in range(looks):
        ending = job.ended(0.1)
        if ending is not None:
            return ending
    raise AssertionError("the job goes on")


def _pod(phase: str, state: Mapping[str, Any] | None = None, **status: Any) -> Mapping[str, Any]:
    states = [] if state is None else [container(MAIN, state)]
    return {"phase": phase, "containerStatuses": states, **status}


def _condition(kind: str, status: str, word: str, message: str) -> Mapping[str, Any]:
    return {"type": kind, "status": status, "reason": word, "message": message}


def _run(life: str, result: str | None = None, code: str | None = None, message: str = "") -> Mapping[str, Any]:
    state = {"life_cycle_state": life, "state_message": message, **({} if result is None else {"result_state": result})}
    details = {"termination_details": {"code": code, "message": message, "type": "CLIENT_ERROR"}}
    return {"state": state, **({} if code is None else {"status": {"state": "TERMINATED", **details}})}


PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image lake:1"}}
UNPLACED = _condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient memory.")
PREEMPTED = _condition(
    "DisruptionTarget", "True", "PreemptionByScheduler", "preempting to accommodate a higher priority pod"
)


def _ended(code: int, word: str) -> Mapping[str, Any]:
    return {"terminated": {"exitCode": code, "reason": word, "message": "exec: lakeproof: not found"}}


@pytest.mark.parametrize(
    ("name", "state", "how", "why"),
    [
        ("kubernetes", _pod("Pending", PULL), "could not start", "ImagePullBackOff: Back-off pulling image lake:1"),
        ("kubernetes", _pod("Pending", conditions=[UNPLACED]), "could not start", "Unschedulable: 0/3 nodes"),
        ("kubernetes", _pod("Pending"), "could not start", "pending"),
        (
            "kubernetes",
            _pod("Failed", reason="OutOfmemory", message="no room"),
            "could not start",
            "OutOfmemory: no room",
        ),
        ("kubernetes", _pod("Failed", _ended(128, "StartError")), "could not start", "exec: lakeproof: not found"),
        (
            "kubernetes",
            _pod("Failed", _ended(137, "Error"), reason="Evicted", message="low on disk"),
            "was killed",
            "Evicted",
        ),
        (
            "kubernetes",
            _pod("Failed", _ended(3, "Error"), conditions=[PREEMPTED]),
            "was killed",
            "PreemptionByScheduler",
        ),
        ("kubernetes", _pod("Running", _ended(137, "OOMKilled")), "was killed", "status 137 (OOMKilled)"),
        ("kubernetes", _pod("Running", _ended(7, "Error")), "ended with status 7", ""),
        (
            "emr_serverless",
            {"state": "FAILED", "stateDetails": "S3 access denied"},
            "could not start",
            "S3 access denied",
        ),
        ("emr_serverless", {"state": "FAILED", "stateDetails": "x", "startedAt": 1790000000}, "failed", "x"),
        ("emr_serverless", {"state": "CANCELLED", "stateDetails": "by a person"}, "was killed", "by a person"),
        (
            "databricks",
            _run("TERMINATED", "FAILED", "CLUSTER_ERROR", "no capacity"),
            "could not start",
            "CLUSTER_ERROR: no",
        ),
        ("databricks", _run("SKIPPED", message="one runs already"), "could not start", "one runs already"),
        ("databricks", _run("TERMINATED", "CANCELED", "USER_CANCELED", "by a person"), "was killed", "by a person"),
        ("databricks", _run("TERMINATED", "TIMEDOUT"), "was killed", "TIMEDOUT"),
        ("databricks", _run("TERMINATED", "FAILED", "RUN_EXECUTION_ERROR", "exit 2"), "failed", "exit 2"),
        # As a run of several tasks says it.
        ("databricks", _run("INTERNAL_ERROR", "FAILED", message="Workload failed"), "failed", "Workload failed"),
    ],
)
def test_an_end_without_a_result_is_named_by_kind(  # noqa: PLR0917  pytest passes fixtures by keyword
    platform: Platform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    state: Mapping[str, Any],
    how: str,
    why: str,
) -> None:
    """The kind of the end is ours, its reason the platform's; a pod is deleted."""
    for limit in ("START_S", "STUCK_S"):
        monkeypatch.setattr(f"resources.compute.on_kubernetes.{limit}", 0.0)  # inside: minutes
    platform.program, platform.state = SLEEPS, state
    ending = ending_of(started(tmp_path, name))
    assert ending.how == how
    assert why in ending.why
    # What the command itself did wrong is in its output, and not for the platform to mend.
    assert bool(ending.remedy) == (how in ("could not start", "was killed"))
    assert platform.cancelled == ({"1"} if name == "kubernetes" else set())


@pytest.mark.parametrize("state", [_pod("Pending", PULL), _pod("Pending", conditions=[UNPLACED]), _pod("Running")])
def test_a_pod_that_may_still_start_is_waited_for(platform: Platform, tmp_path: Path, state: Mapping[str, Any]) -> None:
    """A node may have to be started first, and a registry may be late."""
    platform.program, platform.state = SLEEPS, state
    job = started(tmp_path, "kubernetes")
    assert [job.ended(0.25) for _ in range(4)] == [None] * 4
    assert not platform.cancelled


def test_a_cluster_that_goes_while_a_run_works_has_killed_it(platform: Platform, tmp_path: Path) -> None:
    """The same words before the first task mean that it could not start."""
    platform.program, platform.state = SLEEPS, _run("RUNNING")
    job = started(tmp_path, "databricks")
    assert job.ended(0.1) is None
    platform.state = _run("TERMINATED", "FAILED", "CLOUD_FAILURE", "the instance was reclaimed")
    ending = ending_of(job)
    assert (ending.how, ending.why) == ("was killed", "CLOUD_FAILURE: the instance was reclaimed")


GONE = {
    "kubernetes": (404, {"message": 'pods "lake-1" not found'}),
    "emr_serverless": (404, {"message": "Job run 1 does not exist", "code": "ResourceNotFoundException"}),
    "databricks": (400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "Run 1 does not exist."}),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_job_that_somebody_has_removed_was_killed(platform: Platform, tmp_path: Path, name: str) -> None:
    """The platform does not know it any more, and nothing is asked of the person who configured it."""
    platform.program = SLEEPS
    job = started(tmp_path, name)
    platform.failures = [GONE[name]] * 5
    ending = ending_of(job)
    assert ending.how == "was killed"
    assert str(GONE[name][1]["message"]) in ending.why


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_is_lost_starts_no_second_job(platform: Platform, tmp_path: Path, name: str) -> None:
    """The request is repeated with the same name or token."""
    platform.program, platform.lost = SLEEPS, 1
    job = started(tmp_path, name)
    assert len(platform.created) == 2
    assert list(platform.jobs) == ["1"]
    assert job.ended(0.1) is None


# Databricks' own client waits 15 s in it.
@pytest.mark.parametrize("name", [*NAMES[:2], pytest.param("databricks", marks=pytest.mark.full)])
def test_a_platform_that_is_away_is_asked_again_to_start_and_to_end(
    platform: Platform, tmp_path: Path, name: str
) -> None:
    """A request to end that was not heard is repeated while the job goes on."""
    platform.program = SLEEPS
    away = (503, {"message": "away", "error_code": "TEMPORARILY_UNAVAILABLE", "code": "ServiceUnavailable"})
    platform.failures = [away] * 3
    job = started(tmp_path, name)
    assert list(platform.jobs) == ["1"]
    platform.failures = [away] * 12
    job.terminate()
    assert not platform.cancelled
    platform.failures = []
    ending = ending_of(job)
    assert platform.cancelled == {"1"}
    assert ending.how == "was killed"


def test_a_page_is_known_where_there_is_one(platform: Platform, tmp_path: Path) -> None:
    """Databricks says it; a pod and a job run have their names."""
    platform.program = SLEEPS
    assert started(tmp_path, "databricks").page == f"{platform.url}/#job/1"
    pod = started(tmp_path, "kubernetes")
    assert pod.page == ""
    assert pod.place.startswith("pod lake/lake-")
