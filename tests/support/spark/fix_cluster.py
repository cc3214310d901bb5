"""A standalone Spark cluster of real processes: a master and workers, started as their containers start them.

A run as root gives them another user. Each has folders that only that user reads, and the driver's can't be read by them: so
nothing passes between driver and executors but by their sockets and the store.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from demo.server import unprivileged_user

_SPARK = Path(pyspark.__file__).parent
_START_S = 600.0
# Folders of each process; Spark's own variables name the last two.
_FOLDERS = ("tmp", "home", "conf", "local", "work")
_TASK = re.compile(rb"Running task ")
# Enough for Delta's own code beside some rows.
EXECUTOR_MEMORY = "512m"
_WORKER_MEMORY = "640m"


@dataclass
class Cluster:
    """The processes; `secret` is what they prove to each other that they know."""

    folder: Path
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = 0
    _user: pwd.struct_passwd | None = None

    @property
    def master(self) -> str:
        """The master's URL."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self, workers: int) -> None:
        """Start the master, then the workers; returns when the master answers."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._user = unprivileged_user()
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", str(self.port))
        for number in range(workers):
            self.start_worker(f"worker{number}")

    def start_worker(self, name: str) -> None:
        """Start a worker with one core in a folder of its own."""
        resources = ("--cores", "1", "--memory", _WORKER_MEMORY)
        self._start(name, "worker.Worker", "--host", "127.0.0.1", *resources, self.master)
        self._wait_for(name, "Successfully registered with master")

    def tasks(self, name: str) -> int:
        """The number of tasks that the worker's executors have begun, by their logs."""
        work = self.folder / name / "work"
        return sum(len(_TASK.findall(log.read_bytes())) for log in work.glob("*/*/stderr"))

    def log(self, name: str) -> str:
        """What a process and its executors have printed."""
        logs = [self.folder / name / "log", *(self.folder / name / "work").glob("*/*/std*")]
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def kill(self, name: str) -> None:
        """Kill a worker and its executors, and remove what they had on their disk."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._remove(self.folder / name)

    def stop(self) -> None:
        """Kill all of them."""
        for name in list(self.processes):
            self.kill(name)

    def _remove(self, folder: Path) -> None:
        """Remove a killed process's folder; its executors may write until they are gone, too."""
        deadline = time.monotonic() + _START_S
        while folder.exists():
            try:
                shutil.rmtree(folder)
            except OSError:
                assert time.monotonic() < deadline, folder
                time.sleep(0.1)

    def _start(self, name: str, program: str, *arguments: str) -> None:
        home = self.folder / name
        for folder in (home, *(home / part for part in _FOLDERS)):
            folder.mkdir(mode=0o700)
        defaults = home / "conf" / "spark-defaults.conf"
        defaults.write_text(f"spark.authenticate true\nspark.authenticate.secret {self.secret}\n", encoding="utf-8")
        defaults.chmod(0o600)
        if self._user is not None:
            for path in (home, *home.rglob("*")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        environment = {
            "PATH": os.environ["PATH"],
            **{k: os.environ[k] for k in ("JAVA_HOME",) if k in os.environ},
            # The page of each process would be open to the network otherwise.
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": str(home / "home"),
            "TMPDIR": str(home / "tmp"),
            "SPARK_HOME": str(_SPARK),
            "SPARK_CONF_DIR": str(home / "conf"),
            "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_WORKER_DIR": str(home / "work"),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={home / 'tmp'} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "AWS_ACCESS_KEY_ID": "lake",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        command = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", "--webui-port", "0"]
        with (home / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, *arguments],
                cwd=home,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
                user=None if self._user is None else self._user.pw_uid,
                group=None if self._user is None else self._user.pw_gid,
                extra_groups=None if self._user is None else [],
            )

    def _wait_for(self, name: str, line: str) -> None:
        deadline = time.monotonic() + _START_S
        while line not in (text := (self.folder / name / "log").read_text(encoding="utf-8", errors="replace")):
            assert self.processes[name].poll() is None, text[-2000:]
            assert time.monotonic() < deadline, text[-2000:]
            time.sleep(0.05)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster of two workers with a core each."""
    folder = Path("/tmp") / f"lakeproof-cluster-{secrets.token_hex(6)}"  # noqa: S108  pytest's own folders are closed to other users
    folder.mkdir(mode=0o711)
    started = Cluster(folder)
    try:
        started.start(2)
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder)
