"""Commands as pods of Kubernetes: the manifest is the user's, its first container gets the command's words.

A pod is used, and no Job: what failed is tried again by Dagster, which knows if that helps. What all platforms have in
common does not belong here (`polling`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lakeproof.config.compute import KubernetesConfig
from lakeproof.errors import ConfigError, TransientError
from resources.compute.launchers import Ending, Job
from resources.compute.polling import GoneError, PlatformJob, imported, killed, not_started, patiently, shown

_THING = "compute.kubernetes"
_REQUEST_S = 30
_NAME_MAX = 50
_LINES = 5
# A pod starts in this time, or never: a node may have to be started first, and an image pulled.
START_S = 900.0
# What is seldom mended by waiting; a Secret or a registry may be late for a moment.
STUCK_S = 60.0
_STUCK = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
_NOT_RUN = {"ContainerCannotRun", "StartError"}
_KILLED = {137, 143}
_OWN_CODES = {"Completed", "Error"}
_REFUSED = (400, 401, 403, 404, 409, 422)


@dataclass(frozen=True, slots=True)
class KubernetesLauncher:
    """Starts a pod for each command."""

    config: KubernetesConfig

    def start(self, words: Sequence[str]) -> Job:
        """As the protocol; raises TransientError if the cluster does not answer."""
        pod = pod_with(Path(self.config.pod), words)
        namespace = self.config.namespace or pod["metadata"].get("namespace") or "default"
        cluster = _Cluster(self._api(), namespace)
        # The name is ours, so a repeated request finds the pod that the first one has made.
        named = {**pod, "metadata": _named(pod, namespace)}
        watched = _Pod(cluster, named["metadata"]["name"], pod["spec"]["containers"][0].get("name", ""))
        patiently(lambda: watched.create(named))
        return PlatformJob(f"pod {namespace}/{watched.name}", watched.ending, watched.delete)

    def _api(self) -> Any:
        kubernetes: Any = imported("kubernetes", "kubernetes")
        client, config = kubernetes.client, kubernetes.config
        from kubernetes.config.config_exception import ConfigException

        settings = client.Configuration()
        try:
            if self.config.context is None:
                with suppress(ConfigException):
                    config.load_incluster_config(client_configuration=settings)
                    return client.CoreV1Api(client.ApiClient(settings))
            config.load_kube_config(context=self.config.context, client_configuration=settings)
        except ConfigException as error:
            remedy = "run Dagster in a pod with a service account, or name a context of the kubeconfig file"
            raise ConfigError(_THING, f"no way to a cluster is configured ({shown(error)})", remedy) from None
        return client.CoreV1Api(client.ApiClient(settings))


def pod_with(file: Path, words: Sequence[str]) -> dict[str, Any]:
    """Return the manifest in `file`, whose first container gets `words`; raises ConfigError if it is no pod's."""
    try:
        pod = yaml.safe_load(file.read_text(encoding="utf-8"))
        container = pod["spec"]["containers"][0]
        kind = pod["kind"]
        container["args"] = list(words)
    except OSError as error:
        raise ConfigError(f"{_THING}.pod", f"{file} can't be read ({error.strerror})", "name a manifest") from None
    except (yaml.YAMLError, KeyError, TypeError, IndexError) as error:
        remedy = "give it `kind: Pod` and `spec.containers`"
        raise ConfigError(f"{_THING}.pod", f"{file} is no pod's manifest ({shown(error)})", remedy) from None
    if kind != "Pod":
        raise ConfigError(
            f"{_THING}.pod", f"{file} describes a {shown(kind)}", "describe a Pod; its retries are Dagster's"
        )
    pod["spec"]["restartPolicy"] = "Never"
    pod.setdefault("metadata", {})
    return dict(pod)


def _named(pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    metadata = pod["metadata"]
    name = f"{metadata.get('name', 'lakeproof')[:_NAME_MAX]}-{secrets.token_hex(4)}"
    labels = {"app.kubernetes.io/managed-by": "lakeproof", **metadata.get("labels", {})}
    return {**metadata, "name": name, "namespace": namespace, "labels": labels}


class _TakenError(ConfigError):
    """Something has the name already, or has changed meanwhile."""


_REFUSALS = {404: GoneError, 409: _TakenError}


@dataclass(frozen=True, slots=True)
class _Cluster:
    api: Any
    namespace: str

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the API; raises ConfigError for what it refuses, TransientError if it does not answer."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return getattr(self.api, name)(*arguments, _request_timeout=_REQUEST_S, **options)
        except ApiException as error:
            kind = _REFUSALS.get(error.status, ConfigError)
            reason = f"namespace {self.namespace}: {_reason(error.body) or error.reason} (status {error.status})"
            if error.status in _REFUSED:
                remedy = "give Dagster's account leave to create, get and delete pods there, and see the manifest"
                raise kind(_THING, reason, remedy) from None
            raise TransientError(_THING, reason, "try again") from None
        except HTTPError as error:
            raise TransientError(_THING, f"the cluster does not answer ({shown(error)})", "try again") from None


def _reason(body: Any) -> str:
    with suppress(ValueError, TypeError, KeyError):
        return shown(json.loads(body)["message"])
    return shown(body or "")


@dataclass(slots=True)
class _Pod:
    """A pod of ours; it is deleted when its end has been seen. `container` runs the command; others may go on beside it."""

    cluster: _Cluster
    name: str
    container: str
    created_at: float = field(default_factory=time.monotonic)
    stuck_at: float | None = None

    def create(self, manifest: dict[str, Any]) -> None:
        """Create the pod; done already is as good."""
        try:
            self.cluster.call("create_namespaced_pod", self.cluster.namespace, manifest)
        except _TakenError as error:
            # The first answer was lost; or a quota has changed meanwhile, which is no answer at all.
            try:
                self.cluster.call("read_namespaced_pod", self.name, self.cluster.namespace)
            except GoneError:
                raise TransientError(_THING, error.reason, "try again") from None

    def ending(self) -> Ending | None:
        """Return the end of the command, or of the wait for its start; the pod is deleted then."""
        status = self.cluster.call("read_namespaced_pod", self.name, self.cluster.namespace).status
        state = next((s.state for s in status.container_statuses or [] if s.name == self.container), None)
        done = None if state is None else state.terminated
        if done is not None or status.phase in ("Succeeded", "Failed"):
            ending = _ending(status, done, self._last_lines() if done is not None else ())
        else:
            why = self._not_starting(status, None if state is None else state.waiting)
            if why is None:
                return None
            ending = not_started(why)
        with suppress(ConfigError, TransientError):
            self.delete()
        return ending

    def delete(self) -> None:
        self.cluster.call("delete_namespaced_pod", self.name, self.cluster.namespace)

    def _not_starting(self, status: Any, waiting: Any) -> str | None:
        """Return why the pod will not start, None if it runs or still may."""
        if status.phase != "Pending":
            return None
        now = time.monotonic()
        code = None if waiting is None else _code(waiting)
        self.stuck_at = (self.stuck_at or now) if code in _STUCK else None
        is_stuck = self.stuck_at is not None and now - self.stuck_at > STUCK_S
        if not is_stuck and now - self.created_at <= START_S:
            return None
        unplaced = [c for c in status.conditions or [] if c.type == "PodScheduled" and c.status == "False"]
        return _said(*unplaced, *([] if waiting is None else [waiting])) or f"it is pending after {START_S:.0f} s"

    def _last_lines(self) -> tuple[str, ...]:
        options = {"tail_lines": _LINES, "container": self.container}
        try:
            log = self.cluster.call("read_namespaced_pod_log", self.name, self.cluster.namespace, **options)
        except (ConfigError, TransientError):
            return ()
        return tuple(shown(line) for line in log.splitlines() if line.strip())[-_LINES:]


def _ending(status: Any, done: Any, output: tuple[str, ...]) -> Ending:
    disrupted = [c for c in status.conditions or [] if c.type == "DisruptionTarget" and c.status == "True"]
    outside = _said(status, *disrupted)
    if done is None:
        # Refused by its node, or ended before this container had its turn.
        return not_started(outside or f"the pod ended as {status.phase}")
    code = _code(done)
    if code in _NOT_RUN:
        return not_started(_said(done))
    named = f"status {done.exit_code}" + (f" ({code})" if code and code not in _OWN_CODES else "")
    if outside or code == "OOMKilled" or done.exit_code in _KILLED:
        return killed("; ".join(part for part in (named, outside) if part), output)
    return Ending(f"ended with {named}", output)


def _code(state: Any) -> str | None:
    """Return the word for a state or condition; Kubernetes calls these words reasons."""
    word: str | None = state.to_dict()["reason"]
    return word


def _said(*parts: Any) -> str:
    """Return word and message of states and conditions."""
    texts = [": ".join(text for text in (_code(part), shown(part.message or "")) if text) for part in parts]
    return "; ".join(text for text in texts if text)
