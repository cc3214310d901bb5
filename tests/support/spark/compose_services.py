"""Services of docker/compose.yaml as processes of this machine: each command with its environment, secrets and volumes.

Ports and paths are replaced from one table, and nothing else is: what a service is not given in the file, it does not have.
Networks, users and limits are not reproduced. What is asserted belongs to the tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from demo.server import free_port

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
# How long a service may take to be healthy, or to end by itself.
WAIT_S = 1500.0
_POLL_S = 0.2
# What the images have and this machine may not: an init process, and a look at a port.
_TINI = '#!/bin/sh\nshift\nexec "$@"\n'
_NC = f"""#!{sys.executable}
import socket, sys
socket.create_connection((sys.argv[2], int(sys.argv[3])), 5)
"""
# The S3 server of the tests takes the place of versitygw's, unless this names a versitygw.
GATEWAY = "LAKEPROOF_VERSITYGW"
_GATEWAY = f"""#!{sys.executable}
import os, sys
flag, address, backend, folder = sys.argv[1:]
assert (flag, backend) == ("--port", "posix"), sys.argv
assert os.environ["ROOT_ACCESS_KEY"] and os.environ["ROOT_SECRET_KEY"]
os.listdir(folder)
os.chdir({str(ROOT)!r})
server = "tests.support.stores.object_server"
os.execv(sys.executable, [sys.executable, "-W", "ignore", "-m", server, address.rpartition(":")[2]])
"""
_STAGE = re.compile(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM|\Z)", re.MULTILINE | re.DOTALL)
_ENV = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True)
class Image:
    """The parts of an image that decide about a process: the variables and the entry point of its Dockerfile."""

    environment: Mapping[str, str]
    entrypoint: tuple[str, ...]

    @classmethod
    def of(cls, target: str) -> Image:
        """The image of a stage of docker/Dockerfile."""
        text = re.sub(r"\\\n\s*", " ", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
        stages = {m[2]: (m[1], m[3]) for m in _STAGE.finditer(text)}
        environment: dict[str, str] = {}
        entrypoint: tuple[str, ...] = ()
        name: str = target
        while name in stages:
            base, body = stages[name]
            variables = dict(
                pair for line in re.findall(r"^ENV (.*)$", body, re.MULTILINE) for pair in _ENV.findall(line)
            )
            environment = variables | environment
            entries = re.findall(r"^ENTRYPOINT (.*)$", body, re.MULTILINE)
            entrypoint = entrypoint or tuple(json.loads(entries[-1]) if entries else ())
            name = base
        return cls(environment, entrypoint)


@dataclass
class Service:
    """One container's process: its folder, and what the file says of it."""

    definition: Mapping[str, Any]
    folder: Path
    environment: Mapping[str, str]
    table: Mapping[str, str]
    entrypoint: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None

    def popen(self, words: Sequence[str], output: Any) -> subprocess.Popen[bytes]:
        """Start a command in the container."""
        return subprocess.Popen(
            [replaced(word, self.table) for word in words],
            cwd=self.folder / "app",
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def command(self) -> list[str]:
        """The words of the file, or of its image."""
        entrypoint = self.definition.get("entrypoint", self.entrypoint)
        return [*entrypoint, *self.definition.get("command", ())]

    def is_healthy(self) -> bool:
        """The answer of its check, once."""
        kind, *words = self.definition["healthcheck"]["test"]
        words = ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words
        return self.popen(words, subprocess.DEVNULL).wait(60) == 0

    @property
    def log(self) -> str:
        """The last that it has printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-4000:]


def replaced(text: str, table: Mapping[str, str]) -> str:
    """A text of the file for this machine: `$$` is a dollar sign, and what the table has stands for what it names."""
    names = "|".join(re.escape(name) for name in sorted(table, key=len, reverse=True))
    # A path begins where no other goes on; a host may stand behind the // of a URL.
    return re.sub(
        rf"(?<![\w.-])(?!(?<=/)/)(?:{names})(?![\w.-])", lambda match: table[match[0]], text.replace("$$", "$")
    )


@dataclass
class Compose:
    """The project: `source` is the libpq address of its sample source, which is a server of the tests'."""

    folder: Path
    source: str
    services: dict[str, Service] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.document = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
        self._ports = {name: str(free_port()) for name in ("7070", "7077", "8080")}
        self._programs = self.folder / "bin"
        self._programs.mkdir(parents=True)
        gateway = os.environ.get(GATEWAY)
        programs = {"tini": _TINI, "nc": _NC, "versitygw": _GATEWAY}
        for name, text in programs.items():
            (self._programs / name).write_text(text, encoding="utf-8")
            (self._programs / name).chmod(0o755)
        if gateway:
            (self._programs / "versitygw").unlink()
            (self._programs / "versitygw").symlink_to(gateway)
        (self._programs / "lakeproof").symlink_to(DOCKER / "lakeproof")
        (self.folder / "make_secrets.sh").write_bytes((DOCKER / "make_secrets.sh").read_bytes())
        subprocess.run(["/bin/sh", self.folder / "make_secrets.sh"], check=True, stdout=subprocess.DEVNULL)

    def secret(self, name: str) -> str:
        """A secret's text."""
        return (self.folder / "secrets" / name).read_text(encoding="utf-8")

    def up(self, *names: str) -> None:
        """Start services after those that they depend on, as `docker compose up` does."""
        for name in names:
            definition = self.document["services"][name]
            for dependency, how in definition.get("depends_on", {}).items():
                if dependency == "source":
                    continue
                self.up(dependency)
                self._wait(dependency, how["condition"])
            for number in range(definition.get("deploy", {}).get("replicas", 1)):
                key = f"{name}{number}"
                if key not in self.services:
                    service = self.services[key] = self._service(name, key)
                    with (service.folder / "log").open("wb") as log:
                        service.process = service.popen(service.command, log)

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """Run a service once, with another command if one is given: `docker compose run --rm`. Status and output."""
        definition = self.document["services"][name]
        for dependency, how in definition.get("depends_on", {}).items():
            if dependency != "source":
                self.up(dependency)
                self._wait(dependency, how["condition"])
        service = self._service(name, f"{name}-run")
        command = [*service.entrypoint, *words] if words else service.command
        with (service.folder / "log").open("wb") as log:
            status = service.popen(command, log).wait(WAIT_S)
        return status, service.log

    def stop(self, name: str) -> int:
        """Ask a service's process to end, as `docker compose stop` does, and return its status, -9 past its time.

        Its time is the file's, for as many times as processes wait for a core: the file speaks of a machine of its own.
        """
        service = self.services.pop(f"{name}0")
        assert service.process is not None
        service.process.send_signal(signal.SIGTERM)
        grace = float(service.definition.get("stop_grace_period", "10s").removesuffix("s"))
        with suppress(subprocess.TimeoutExpired):
            service.process.wait(grace * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
        with suppress(ProcessLookupError):
            os.killpg(service.process.pid, signal.SIGKILL)
        return service.process.wait()

    def down(self) -> None:
        """Kill what is left."""
        for service in self.services.values():
            assert service.process is not None
            with suppress(ProcessLookupError):
                os.killpg(service.process.pid, signal.SIGKILL)
            service.process.wait()

    def address(self, port: str) -> str:
        """The address on this machine of a port of the file."""
        return f"127.0.0.1:{self._ports[port]}"

    def _wait(self, name: str, condition: str) -> None:
        deadline = time.monotonic() + WAIT_S
        for service in [s for key, s in self.services.items() if key.rstrip("0123456789") == name]:
            assert service.process is not None
            if condition == "service_completed_successfully":
                assert service.process.wait(WAIT_S) == 0, service.log
                continue
            assert condition == "service_healthy"
            while not service.is_healthy():
                assert service.process.poll() is None, service.log
                assert time.monotonic() < deadline, service.log
                time.sleep(_POLL_S)

    def _service(self, name: str, key: str) -> Service:
        # A service that is started again is a new container.
        again = len(list(self.folder.glob(f"{key}*")))
        definition, folder = self.document["services"][name], self.folder / (f"{key}-{again}" if again else key)
        for part in ("app/docker", "home", "scratch", "secrets", "tmp"):
            (folder / part).mkdir(parents=True)
        image = Image.of({"lakeproof": "image", "lakeproof-drain": "drain"}.get(definition["image"], ""))
        table = self._table(folder)
        (folder / "app" / "lakeproof").symlink_to(ROOT / "lakeproof")
        for file in ("lakeproof", "entrypoint"):
            (folder / "app" / "docker" / file).symlink_to(DOCKER / file)
        for secret in definition.get("secrets", ()):
            mounted = self.document["secrets"][secret]["file"]
            (folder / "secrets" / secret).write_bytes((self.folder / mounted).read_bytes())
        if any(volume.startswith("./sample:") for volume in definition.get("volumes", ())):
            self._mount_sample(folder / "app" / "docker" / "sample", table)
        given = image.environment | definition.get("environment", {})
        environment = {
            "HOME": str(folder / "home"),
            # A container has a loopback address of its own; this machine's processes find each other at it.
            "SPARK_LOCAL_IP": "127.0.0.1",
            **{variable: replaced(value, table) for variable, value in given.items()},
            "PATH": f"{self._programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        }
        return Service(definition, folder, environment, table, image.entrypoint)

    def _mount_sample(self, folder: Path, table: Mapping[str, str]) -> None:
        folder.mkdir()
        for file in (DOCKER / "sample").iterdir():
            (folder / file.name).write_text(replaced(file.read_text(encoding="utf-8"), table), encoding="utf-8")
            (folder / file.name).chmod(file.stat().st_mode)

    def _table(self, folder: Path) -> dict[str, str]:
        """The table: what stands in the file, and what stands for it on this machine."""
        data = self.folder / "s3-data"
        data.mkdir(exist_ok=True)
        return {
            **self._ports,
            "s3:7070": self.address("7070"),
            ":7070": self.address("7070"),
            # Each worker's page has a port of its own here.
            "8081": str(free_port()),
            "spark-master": "127.0.0.1",
            "host=source": self.source,
            "/app": str(folder / "app"),
            "/scratch": str(folder / "scratch"),
            "/data": str(data),
            "/run/secrets": str(folder / "secrets"),
            "/tmp/round": str(folder / "tmp" / "round"),  # noqa: S108  a name in the file
            "/opt/jars": os.environ["LAKEPROOF_JARS"],
            "/usr/local/bin/versitygw": str(self._programs / "versitygw"),
            "10001:10001": f"{os.geteuid()}:{os.getegid()}",
        }
