"""Times drain, copy and a bare COPY over TLS, against the same without encryption, in one run.

The drained backlogs are cases of `bench.ingest.drain`, the copied table is that of `bench.ingest.bootstrap`; neither is
defined here. The embedded PostgreSQL 18 has no TLS, so the server is 17, on the loopback address, with a self-signed
certificate; its pg_recvlogical has no TLS, so `--recvlogical` names another.

    python -m bench.ingest.tls [--case mixed ...] [--changes N] [--rows N] [--rounds N] [--recvlogical PROGRAM]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.ingest import bootstrap, drain
from demo.server import EmbeddedPostgres, unprivileged_user
from scripts.fetch.servers import fetch

_CONF = {"shared_buffers": "512MB", "max_wal_size": "8GB", "fsync": "off"}
_SSL = {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
_MODES = {"clear": "disable", "TLS": "require"}


@dataclass
class _Server(EmbeddedPostgres):
    """A server whose connections use TLS or not, as set last."""

    sslmode: str = "disable"

    def dsn(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        return f"{super().dsn(database, user, password)} sslmode={self.sslmode}"


def main() -> None:
    """Print one line per reader: seconds without and with TLS, and the median ratio of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", nargs="*", choices=list(drain.CASES), default=["mixed"])
    parser.add_argument("--recvlogical", type=Path, help="a pg_recvlogical with TLS; without it, none is compared")
    options = parser.parse_args()
    server = _Server(conf=_CONF, install=fetch(17))
    server.start()
    server.halt()
    _certify(server.data)
    server.conf = {**_CONF, **_SSL}
    with server:
        print(f"{'reader':24}{'clear s':>9}{'TLS s':>9}{'ratio':>7}{'CPU ratio':>11}")
        for case in options.case:
            _compare_drains(server, case, options)
        if not options.rows:
            return
        bootstrap.fill(server, options.rows)
        copies = {f"copy, {kind}": partial(_copied, server, kind, options.rows) for kind in ("bare COPY", "lakeproof")}
        _compare(server, copies, options.rounds)


def _compare_drains(server: _Server, case: str, options: argparse.Namespace) -> None:
    """Compare a backlog's readers in the clear and under TLS."""
    server.sslmode = "disable"
    end = drain.load(server, case, options.changes).end
    readers: dict[str, Callable[[str], tuple[float, float]]] = {
        f"{case}, lakeproof": lambda slot: _seconds(drain.ours(server, case, f"{case}_ours_{slot}", end))
    }
    if options.recvlogical:
        readers[f"{case}, pg_recvlogical"] = lambda slot: _seconds(
            drain.recvlogical(server, case, f"{case}_theirs_{slot}", end, options.recvlogical)
        )
    _compare(server, readers, options.rounds)


def _seconds(run: drain.Run) -> tuple[float, float]:
    return run.wall_s, run.client_cpu_s


def _copied(server: EmbeddedPostgres, kind: str, rows: int, _slot: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        run = bootstrap.measured(server, bootstrap.own(kind, server, 1, Path(folder)), rows)
    return run.wall_s, run.client_cpu_s


def _compare(server: _Server, readers: Mapping[str, Callable[[str], tuple[float, float]]], rounds: int) -> None:
    """Let the readers take turns in both modes; print one line for each."""
    runs: dict[tuple[str, str], list[tuple[float, float]]] = {(name, mode): [] for name in readers for mode in _MODES}
    for number in range(rounds):
        for mode, sslmode in _MODES.items():
            server.sslmode = sslmode
            for name, read in readers.items():
                runs[name, mode].append(read(f"{mode}_{number}".lower()))
    for name in readers:
        pairs = list(zip(runs[name, "clear"], runs[name, "TLS"], strict=True))
        wall, cpu = (statistics.median(tls[i] / clear[i] for clear, tls in pairs) for i in (0, 1))
        seconds = (statistics.median(run[0] for run in runs[name, mode]) for mode in _MODES)
        print(f"{name:24}" + "".join(f"{s:9.2f}" for s in seconds) + f"{wall:7.2f}{cpu:11.2f}", flush=True)


def _certify(data: Path) -> None:
    """Create a key and a self-signed certificate for the server."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", "server.key", "-out", "server.crt"],
        check=True, capture_output=True, cwd=data,
    )  # fmt: skip
    user = unprivileged_user()
    for name in ("server.crt", "server.key"):
        (data / name).chmod(0o600)
        if user is not None:
            shutil.chown(data / name, user.pw_uid, user.pw_gid)


if __name__ == "__main__":
    main()
