"""The platforms of `compute` as a server of this machine, and sections of the configuration that lead to it.

The server belongs to `shell/platforms.py`; what is asserted of it to the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.shell.platforms import Platform, serve

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "lake"},
    "spec": {"containers": [{"name": "main", "image": "i"}]},
}
EMR = {
    "application": "app1",
    "role": "arn:aws:iam::1:role/lake",
    "entry_point": "s3://lake/main.py",
    "region": "eu-central-1",
}
TASK = {"existing_cluster_id": "c1", "spark_python_task": {"python_file": "dbfs:/lakeproof.py"}}


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """The server, and an environment in which each client finds it."""
    with serve(Platform()) as served:
        cluster = {"name": "c", "cluster": {"server": served.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        kubeconfig = {
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **kubeconfig}))
        monkeypatch.setattr(
            "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig")
        )  # inside: the client reads KUBECONFIG once, when it is imported
        monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", served.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lake")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("DATABRICKS_HOST", served.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", "token")
        monkeypatch.setattr("resources.compute.polling.ASK_EVERY_S", 0.2)  # inside: five seconds
        monkeypatch.setattr("resources.compute.polling.START_AGAIN_S", 0.1)  # inside: two seconds
        monkeypatch.setattr(
            "dagster._core.pipes.utils.WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 0
        )  # inside: ten seconds
        yield served


def section_of(folder: Path, name: str, **more: float) -> str:
    """The section `compute` for a platform, and the file that it names."""
    (folder / "pod.yaml").write_text(yaml.safe_dump(POD))
    (folder / "task.yaml").write_text(yaml.safe_dump(TASK))
    places = {
        "kubernetes": {"pod": "pod.yaml", "namespace": "lake"},
        "emr_serverless": EMR,
        "databricks": {"task": "task.yaml"},
    }
    return f"compute: {json.dumps({name: places[name], **more})}\n"
