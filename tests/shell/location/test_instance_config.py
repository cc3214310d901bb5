"""The Dagster instances that ship: both are what Dagster takes, and no container file can hide the docker package."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["orchestration/dagster.yaml", "docker/dagster.yaml"])
def test_dagster_takes_the_instance_configuration(name: str, tmp_path: Path) -> None:
    """Every key is known to this version, and calls home are off."""
    shutil.copy(ROOT / name, tmp_path / "dagster.yaml")
    config, _ = dagster_instance_config(str(tmp_path))
    assert config["telemetry"] == {"enabled": False}
    assert config["nux"] == {"enabled": False}
    assert config["run_monitoring"]["enabled"] is True


def test_the_developers_instance_comes_up(tmp_path: Path) -> None:
    """The instance uses SQLite, in a folder that has nothing else."""
    shutil.copy(ROOT / "orchestration" / "dagster.yaml", tmp_path / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_runs_count() == 0


def test_the_production_instance_names_its_driver() -> None:
    """SQLAlchemy picks psycopg 3 otherwise, in which Dagster's NOTIFY is a syntax error."""
    config = yaml.safe_load((ROOT / "docker" / "dagster.yaml").read_text(encoding="utf-8"))
    assert config["storage"]["postgres"]["postgres_db"]["scheme"] == "postgresql+psycopg2"


def test_compose_has_one_daemon_a_grace_period_and_a_check_of_every_service() -> None:
    """Two daemons would start every run twice; a drain needs its time to end."""
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert services["daemon"]["deploy"]["replicas"] == 1
    assert services["code"]["stop_grace_period"] == "90s"
    # One that ends by itself has nothing to be asked.
    assert all("healthcheck" in service for service in services.values() if service["restart"] != "no")
    workspace = yaml.safe_load((ROOT / "docker" / "workspace.yaml").read_text(encoding="utf-8"))
    (entry,) = workspace["load_from"]
    assert entry["grpc_server"]["host"] in services
    assert str(entry["grpc_server"]["port"]) in services["code"]["command"]


def test_every_service_is_hardened_and_its_secrets_are_files() -> None:
    """No service has an unlisted capability, and `docker inspect` shows no password."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        passwords = [key for key in service.get("environment", ()) if re.search("PASSWORD|LOGIN|SECRET|KEY", key)]
        assert all(key.endswith("_FILE") for key in passwords), name
        assert set(service.get("secrets", ())) <= compose["secrets"].keys(), name
    assert all(set(secret) == {"file"} for secret in compose["secrets"].values())


def test_a_source_does_not_reach_dagster() -> None:
    """The code server and the storage have no login that would keep it out; and they reach nothing outside."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    networks = {name: set(service.get("networks", ())) for name, service in compose["services"].items()}
    assert compose["networks"]["dagster"]["internal"] is True
    assert not networks["source"] & networks["dagster-storage"]
    assert {name for name, joined in networks.items() if "source" in joined} == {"source", "code", "drain", "prove"}
    assert {name for name, joined in networks.items() if "dagster" in joined} == {
        "dagster-storage", "code", "webserver", "daemon",
    }  # fmt: skip
    assert compose["networks"]["lake"]["internal"] is True
    assert networks["daemon"] == networks["dagster-storage"] == {"dagster"}


def test_the_image_has_what_its_dockerfile_copies() -> None:
    """Files that the ignore file leaves out can't be copied."""
    ignored = (ROOT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    kept = [line[1:] for line in ignored.splitlines() if line.startswith("!")]
    copies = re.findall(
        r"^COPY (?!--from)(.+)$", (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    sources = [name for copy in copies for name in copy.split()[:-1]]
    assert sources
    assert all((ROOT / name).exists() for name in sources)
    assert [name for name in sources if not any(name == k or name.startswith(f"{k}/") for k in kept)] == []


def test_docker_is_a_folder_and_no_package() -> None:
    """An __init__.py would make `import docker` find this folder."""
    assert not (ROOT / "docker" / "__init__.py").exists()
