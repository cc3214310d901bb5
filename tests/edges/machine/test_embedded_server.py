"""The embedded server, where root's PostgreSQL user can't read the installed one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psycopg
import pytest

from demo import server as module
from demo.server import EmbeddedPostgres, ServerError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs the installed programs as they are")


def _let_pass(folder: Path) -> None:
    """Let everybody into a folder, which is below the one for temporary files."""
    for part in (folder, *folder.parents):
        if Path(tempfile.gettempdir()) not in part.parents:
            break
        part.chmod(0o755)


@pytest.fixture
def private_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as in a checkout under a folder of mode 0700, and a TMPDIR of this test's own."""
    installed = module._installed()
    package = installed.parent
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, private / folder.name, symlinks=True)
    _let_pass(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # inside: Python keeps the folder that it has found first
    return private / package.name / installed.name


@needs_root
def test_a_server_runs_from_a_private_checkout(private_install: Path) -> None:
    """The programs and their libraries are copied to a folder in which the server's user can run them."""
    with EmbeddedPostgres(install=private_install) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert server.run("psql", "-c", "SELECT 1").returncode == 0


@needs_root
def test_programs_that_someone_else_has_put_there_are_not_run(private_install: Path, tmp_path: Path) -> None:
    """The copy's name can be guessed, and the folder for temporary files is everyone's."""
    stamp = (private_install / "bin" / "postgres").stat()
    planted = tmp_path / f"lakeproof-postgres-0-{stamp.st_size}-{int(stamp.st_mtime)}"
    planted.mkdir()
    os.chown(planted, 65534, 65534)
    server = EmbeddedPostgres(install=private_install)
    with pytest.raises(ServerError, match="belongs to another user"):
        server.start()
    server.stop()


def test_the_servers_user_plants_no_link_that_its_starter_follows(tmp_path: Path) -> None:
    """A superuser runs programs as the server's user: outside the cluster it must have no place to write."""
    _let_pass(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("as it was", encoding="utf-8")
    state = tmp_path / "state"
    state.mkdir()
    (state / "password").symlink_to(precious)
    with EmbeddedPostgres(state=state) as server, psycopg.connect(server.dsn(), autocommit=True) as admin:
        assert server.root.stat().st_uid == os.geteuid()
        if os.geteuid() == 0:
            with pytest.raises(psycopg.errors.ExternalRoutineException):
                admin.execute(f"COPY (SELECT 1) TO PROGRAM 'ln -s {precious} {state}/postgres.log.1'")
    assert precious.read_text(encoding="utf-8") == "as it was"
    (state / "postgres.log").unlink()
    (state / "postgres.log").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        EmbeddedPostgres(state=state).start()
    assert precious.read_text(encoding="utf-8") == "as it was"


def test_each_server_has_a_password_of_its_own(tmp_path: Path) -> None:
    """Everybody on this machine reaches its port."""
    first, second = EmbeddedPostgres(state=tmp_path), EmbeddedPostgres(state=tmp_path)
    assert first.password != second.password
    assert first.password not in repr(first)
