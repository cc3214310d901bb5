"""A PgBouncer before the run's server, as people have one: Debian's, in a pool of transactions or of sessions.

Finding or installing it belongs to `scripts/fetch/pooler.py`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from demo.server import unprivileged_user
from scripts.fetch.debian import PackageError
from scripts.fetch.pooler import PGBOUNCER
from tests.support.servers.fix_postgres import Database


@contextmanager
def pooled(database: Database, **settings: str) -> Iterator[str]:
    """Run a PgBouncer, and yield the DSN that leads through it; skip the test without one."""
    program = _program()
    parts = conninfo_to_dict(database.dsn)
    folder = Path(tempfile.mkdtemp(prefix="lakeproof-pooler-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": str(folder / "users.txt"),
        "logfile": str(folder / "log"),
        **settings,
    }
    target = f"host={parts['host']} port={parts['port']} dbname={parts['dbname']}"
    text = f"[databases]\n{parts['dbname']} = {target}\n[pgbouncer]\n"
    (folder / "pooler.ini").write_text(text + "".join(f"{name} = {value}\n" for name, value in lines.items()))
    (folder / "users.txt").write_text(f'"{parts["user"]}" "{parts["password"]}"\n')
    user = unprivileged_user()
    if user is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    process = subprocess.Popen(
        [program, "-q", str(folder / "pooler.ini")], user=None if user is None else user.pw_uid, cwd=folder
    )
    try:
        _wait_for(port, process)
        yield make_conninfo(database.dsn, host="127.0.0.1", port=port)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _program() -> str:
    try:
        return PGBOUNCER.find() or PGBOUNCER.installed()
    except PackageError:
        pytest.skip(f"no PgBouncer: {PGBOUNCER.remedy}")


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the pooler does not listen")
