"""A server with the parts of three platforms' HTTP interfaces that `resources.compute` uses; it runs what it is given.

Kubernetes: pods. EMR Serverless: job runs. Databricks: runs of one task. A job is a process of this machine, with this
checkout's `lakeproof` or whatever `program` says. Tests do not belong here.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LAKEPROOF = (sys.executable, "-m", "lakeproof")


@dataclass
class Platform:
    """The jobs by number, and how the next requests are answered."""

    program: tuple[str, ...] = LAKEPROOF
    jobs: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    created: list[Any] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    # The status and body of the next answers, whatever is asked.
    failures: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    # So many answers are lost after what was asked for has been done.
    lost: int = 0
    # The state of every job instead of its process's: a pod's status, a job run, a run.
    state: Mapping[str, Any] | None = None
    # The token or name of a request that creates → the number of its job.
    tokens: dict[str, str] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, words: list[str], token: str) -> str:
        """Start a process for a token that is new; return its number."""
        if token in self.tokens:
            return self.tokens[token]
        number = self.tokens[token] = str(len(self.jobs) + 1)
        self.jobs[number] = subprocess.Popen(
            [*self.program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return number

    def status(self, number: str) -> int | None:
        """A process's exit status, None while it runs."""
        return self.jobs[number].poll()

    def cancel(self, number: str) -> None:
        """End a process."""
        self.cancelled.add(number)
        self.jobs[number].terminate()

    def log(self, number: str) -> str:
        """What a process that has ended has printed; nothing of one that runs."""
        stream = self.jobs[number].stdout
        assert stream is not None
        return "" if self.status(number) is None else stream.read()


class _RefusedError(Exception):
    """An answer other than 200."""


def _new_pod(platform: Platform, body: Any) -> Any:
    platform.created.append(body)
    name = body["metadata"]["name"]
    if name in platform.tokens:
        raise _RefusedError(409, {"message": f'pods "{name}" already exists', "reason": "AlreadyExists"})
    platform.start(body["spec"]["containers"][0]["args"], name)
    return body


def _pod(platform: Platform, name: str) -> Any:
    number = platform.tokens.get(name)
    if number is None:
        raise _RefusedError(404, {"message": f'pods "{name}" not found', "reason": "NotFound"})
    document = {"kind": "Pod", "metadata": {"name": name}}
    if platform.state is not None:
        return {**document, "status": platform.state}
    status = platform.status(number)
    phase = "Running" if status is None else "Failed" if status else "Succeeded"
    state: dict[str, Any] = {"running": {}}
    if status is not None:
        code = 128 - status if status < 0 else status
        state = {"terminated": {"exitCode": code, "reason": "OOMKilled" if code == 137 else "Error"}}
    return {**document, "status": {"phase": phase, "containerStatuses": [container("main", state)]}}


def container(name: str, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of a pod's container."""
    return {"name": name, "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}


def _new_emr_run(platform: Platform, body: Any) -> Any:
    platform.created.append(body)
    number = platform.start(body["jobDriver"]["sparkSubmit"]["entryPointArguments"], body["clientToken"])
    return {"applicationId": "app1", "jobRunId": number, "arn": "arn"}


def _emr_run(platform: Platform, number: str) -> Any:
    run = {"jobRunId": number, "applicationId": "app1"}
    if platform.state is not None:
        return {"jobRun": {**run, **platform.state}}
    status = platform.status(number)
    state = "RUNNING" if status is None else "SUCCESS" if status == 0 else "FAILED"
    if number in platform.cancelled and status is not None:
        state = "CANCELLED"
    details = f"exit status {status}" if status else ""
    return {"jobRun": {**run, "state": state, "stateDetails": details, "startedAt": 1790000000}}


def _new_run(platform: Platform, body: Any) -> Any:
    platform.created.append(body)
    (task,) = body["tasks"]
    return {"run_id": int(platform.start(task["spark_python_task"]["parameters"], body["idempotency_token"]))}


def _run(platform: Platform, number: str) -> Any:
    status = platform.status(number)
    state: Mapping[str, Any] = {"life_cycle_state": "RUNNING"}
    if status is not None:
        result = "CANCELED" if number in platform.cancelled else "FAILED" if status else "SUCCESS"
        state = {"life_cycle_state": "TERMINATED", "result_state": result, "state_message": ""}
    run = {"run_id": int(number), "run_page_url": f"{platform.url}/#job/{number}"}
    return {**run, "tasks": [{"run_id": int(number), "task_key": "t"}], **(platform.state or {"state": state})}


def _cancelled(platform: Platform, number: str) -> Any:
    platform.cancel(number)
    return {}


def _deleted(platform: Platform, name: str) -> Any:
    number = platform.tokens.pop(name, None)
    if number is None:
        raise _RefusedError(404, {"message": f'pods "{name}" not found'})
    return _cancelled(platform, number)


_Answer = Callable[[Platform, Any], Any]
# Method and path → what answers: with the body of a request that creates, otherwise with the number in the path or body.
_ROUTES: tuple[tuple[str, str, _Answer], ...] = (
    ("POST", r"/api/v1/namespaces/lake/pods", _new_pod),
    ("GET", r"/api/v1/namespaces/lake/pods/([\w-]+)", _pod),
    ("GET", r"/api/v1/namespaces/lake/pods/([\w-]+)/log", lambda platform, name: platform.log(platform.tokens[name])),
    ("DELETE", r"/api/v1/namespaces/lake/pods/([\w-]+)", _deleted),
    ("POST", r"/applications/app1/jobruns", _new_emr_run),
    ("GET", r"/applications/app1/jobruns/(\d+)", _emr_run),
    ("DELETE", r"/applications/app1/jobruns/(\d+)", _cancelled),
    ("POST", r"/api/2\.\d/jobs/runs/submit", _new_run),
    ("GET", r"/api/2\.\d/jobs/runs/get\?.*run_id=(\d+).*", _run),
    (
        "GET",
        r"/api/2\.\d/jobs/runs/get-output\?.*run_id=(\d+).*",
        lambda p, n: {"error": p.log(n) if p.status(n) else ""},
    ),
    ("POST", r"/api/2\.\d/jobs/runs/cancel", lambda platform, body: _cancelled(platform, str(body["run_id"]))),
)


class _Handler(BaseHTTPRequestHandler):
    platform: Platform

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        self.platform.asked.append(f"{self.command} {self.path}")
        if self.platform.failures:
            self._send(*self.platform.failures.pop(0))
            return
        for method, pattern, answer in _ROUTES:
            match = re.fullmatch(pattern, self.path) or re.fullmatch(pattern, self.path.partition("?")[0])
            if method == self.command and match:
                try:
                    document = answer(self.platform, match[1] if match.groups() else body)
                except _RefusedError as refused:
                    self._send(*refused.args)
                    return
                if self.platform.lost:
                    self.platform.lost -= 1
                    document, status = {"message": "gateway timeout", "error_code": "TEMPORARILY_UNAVAILABLE"}, 503
                    self._send(status, document)
                    return
                self._send(200, document)
                return
        self._send(404, {"message": f"no {self.path}", "error_code": "ENDPOINT_NOT_FOUND"})

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815  names of http.server

    def _send(self, status: int, document: Any) -> None:
        data = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(document, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serve(platform: Platform) -> Iterator[Platform]:
    """Serve all three interfaces at a free port; ends what still runs."""
    handler = type("Handler", (_Handler,), {"platform": platform})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        platform.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield platform
        finally:
            server.shutdown()
            thread.join()
            for process in platform.jobs.values():
                process.kill()
                process.communicate()
