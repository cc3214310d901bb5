"""Commands as pods, EMR Serverless job runs and Databricks runs, through each platform's own client.

The platforms are servers of this machine that really run the command; one of the user's is in `test_compute_command.py`.
"""

import sys
import threading
from pathlib import Path

import dagster as dg
import pytest
import yaml

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.compute import DatabricksConfig, KubernetesConfig
from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.errors import ConfigError, TransientError
from lakeproof.events import RunControl, Stop, silent
from resources import Compute
from resources.compute.on_databricks import DatabricksLauncher, task_with
from resources.compute.on_kubernetes import KubernetesLauncher, pod_with
from resources.compute.polling import PlatformJob, imported
from tests.fix_platforms import POD, TASK, section_of
from tests.fix_postgres import Database
from tests.shell.elsewhere import result_of
from tests.shell.platforms import Platform
from tests.shell.sample import password_of, write_source

NAMES = ("kubernetes", "emr_serverless", "databricks")


def each_platform(first: str) -> pytest.MarkDecorator:
    """All platforms; `make test` takes the first alone, since each needs a command of its own."""
    others = [pytest.param(name, marks=pytest.mark.full) for name in NAMES if name != first]
    return pytest.mark.parametrize("name", [first, *others])


REFUSALS = {
    "kubernetes": (403, {"message": 'pods is forbidden: User "dagster" cannot create resource "pods"'}),
    "emr_serverless": (
        400,
        {"message": "Role arn:aws:iam::1:role/lake can't be assumed", "code": "ValidationException"},
    ),
    "databricks": (403, {"error_code": "PERMISSION_DENIED", "message": "dagster has no permission to submit"}),
}


def _config(folder: Path, section: str) -> Path:
    path = folder / "lakeproof.yaml"
    path.write_text(f"lake: lake\nsources:\n  shop: {{dsn: dbname=x, tables: [public.t]}}\n{section}", encoding="utf-8")
    return path


@pytest.mark.postgres
@each_platform("kubernetes")
def test_a_command_on_a_platform_gives_its_result_and_its_events(  # noqa: PLR0917  pytest passes fixtures by keyword
    database: Database,
    tmp_path: Path,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """A drain there: what it read is in the lake, and its events and result arrive through the lake."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    path = write_source(tmp_path, database, f"    tables: [public.t]\n{section_of(tmp_path, name)}")
    bootstrap(load(path), "shop")
    database.execute("INSERT INTO t SELECT generate_series(1, 10)")
    result, _ = result_of(path, "drain", "shop", "--once")
    assert result["tables"]["public.t"]["inserts"] == 10
    log = capfd.readouterr().err
    assert "drain runs as" in log
    assert "10 rows of 1 transaction durable" in log
    (created,) = platform.created
    if name == "kubernetes":
        assert created["spec"]["restartPolicy"] == "Never"
        assert created["metadata"]["name"].startswith("lake-")
        assert platform.asked[-1].startswith("DELETE"), "the pod of a command that has ended is deleted"


@each_platform("databricks")
def test_an_error_of_the_command_is_its_own(tmp_path: Path, platform: Platform, name: str) -> None:
    """Thing, reason and remedy come from the command, not from the platform."""
    with pytest.raises(dg.Failure) as raised:
        result_of(_config(tmp_path, section_of(tmp_path, name)), "compact", "shop")
    assert raised.value.metadata["thing"].value == f"lake {tmp_path / 'lake'}", "there is none yet"
    assert platform.jobs["1"].wait() == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("kubernetes", "status 137 (OOMKilled)", marks=pytest.mark.full),
        pytest.param("emr_serverless", "it failed without a result", marks=pytest.mark.full),
        ("databricks", "it failed without a result"),
    ],
)
def test_a_job_that_was_killed_is_named_as_the_platform_names_it(
    tmp_path: Path, platform: Platform, name: str, reason: str
) -> None:
    """It ended without a result."""
    platform.program = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(dg.Failure) as raised:
        result_of(_config(tmp_path, section_of(tmp_path, name)), "compact", "shop")
    assert reason in (raised.value.description or "")
    assert "without a result" in (raised.value.description or "")


@pytest.mark.parametrize("name", NAMES)
def test_what_a_platform_refuses_is_one_clear_error(tmp_path: Path, platform: Platform, name: str) -> None:
    """The platform's own words, and no second try."""
    status, body = REFUSALS[name]
    platform.failures = [(status, body)] * 3
    with pytest.raises(dg.Failure) as raised:
        result_of(_config(tmp_path, section_of(tmp_path, name)), "compact", "shop")
    assert raised.value.metadata["thing"].value == f"compute.{name}"
    assert str(body["message"]).split(":")[0] in (raised.value.description or "")
    assert not platform.jobs


@each_platform("emr_serverless")
def test_questions_that_fail_are_asked_again(tmp_path: Path, platform: Platform, name: str) -> None:
    """A platform that is away for a moment ends no run."""
    config = _config(tmp_path, section_of(tmp_path, name))
    platform.program = (sys.executable, "-c", "import time; time.sleep(2); raise SystemExit(7)")
    timer = threading.Timer(
        1, lambda: platform.failures.extend([(500, {"message": "oh", "error_code": "INTERNAL_ERROR"})] * 2)
    )
    timer.start()
    with pytest.raises(dg.Failure, match="without a result"):
        result_of(config, "compact", "shop")
    timer.join()


@each_platform("kubernetes")
def test_a_run_that_is_ended_ends_the_job(tmp_path: Path, platform: Platform, name: str) -> None:
    """A command that does not listen is cancelled after `stop_s`."""
    platform.program = (sys.executable, "-c", "import time; time.sleep(600)")
    path, stop = _config(tmp_path, section_of(tmp_path, name, stop_s=0.5)), Stop()
    timer = threading.Timer(2, stop.request)
    timer.start()

    @dg.asset
    def waiting(context: dg.AssetExecutionContext, compute: Compute) -> dg.MaterializeResult[None]:
        compute.run(context, ["compact", "shop"], RunControl(silent, stop))
        return dg.MaterializeResult()

    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"compute": Compute(config_path=str(path))}
        done = dg.materialize([waiting], instance=instance, resources=resources, raise_on_error=False)
    timer.join()
    assert not done.success
    assert platform.cancelled == {"1"}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "can't be read"),
        ("kind: Job\nspec: {containers: [{name: a}]}", "describes a Job"),
        ("kind: Pod\nspec: {}", "is no pod's manifest"),
        ("[a", "is no pod's manifest"),
        ("7", "is no pod's manifest"),
    ],
)
def test_a_file_that_is_no_pod_is_refused(tmp_path: Path, document: str | None, reason: str) -> None:
    """Before anything is asked of a cluster."""
    file = tmp_path / "pod.yaml"
    if document is not None:
        file.write_text(document)
    with pytest.raises(ConfigError, match=reason):
        pod_with(file, ["compact"])


def test_the_manifest_that_ships_is_taken() -> None:
    """The image's entry point runs any command, so the manifest names lakeproof."""
    file = Path(__file__).parents[2] / "docker" / "kubernetes" / "pod.yaml"
    (container,) = pod_with(file, ["compact", "shop"])["spec"]["containers"]
    assert [*container["command"], *container["args"]] == ["tini", "--", "lakeproof", "compact", "shop"]


@pytest.mark.parametrize("document", ["{}", "notebook_task: {notebook_path: a}", "7", "[", None])
def test_a_file_that_is_no_task_is_refused(tmp_path: Path, document: str | None) -> None:
    """A notebook takes no list of words."""
    file = tmp_path / "task.yaml"
    if document is not None:
        file.write_text(document)
    with pytest.raises(ConfigError, match=r"no task that takes parameters|can't be read"):
        task_with(file, ["compact"])


def test_a_place_that_is_not_configured_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubeconfig, no host, no package: each says what to do."""
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(TASK))
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none")
    )  # inside: read once, when the client is imported
    with pytest.raises(ConfigError, match="no way to a cluster"):
        KubernetesLauncher(KubernetesConfig(pod=str(tmp_path / "pod.yaml"))).start(["compact"])
    with pytest.raises(ConfigError, match="DATABRICKS_HOST"):
        DatabricksLauncher(DatabricksConfig(task=str(tmp_path / "task.yaml"))).start(["compact"])
    with pytest.raises(ConfigError, match=r"install lakeproof\[databricks\]"):
        imported("no_such_package_of_a_platform", "databricks")


def test_a_platform_that_stays_away_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as the limit says."""
    monkeypatch.setattr("resources.compute.polling.PATIENCE_S", 0.3)  # inside: ten minutes

    def ask() -> None:
        raise TransientError("platform", "it is away", "try again")

    job = PlatformJob("job 1", ask, ask, ask_every_s=0.1)
    assert job.ended(0.15) is None

    def wait() -> None:
        while True:
            job.ended(0.15)

    with pytest.raises(TransientError, match="away"):
        wait()
    job.terminate()


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("compute: {command: [a], databricks: {task: t.yaml}}", "names several places: command, databricks"),
        ("compute: {kubernetes: {}}", "compute.kubernetes.pod"),
        ("compute: {kubernetes: pod.yaml}", "must be a mapping"),
        ("compute: {emr_serverless: {application: a, role: r}}", "entry_point"),
    ],
)
def test_a_mistake_in_the_section_is_named(tmp_path: Path, section: str, text: str) -> None:
    """The file is refused when it is read."""
    with pytest.raises(ConfigFileError) as raised:
        load(_config(tmp_path, section))
    assert text in str(raised.value)
