"""A machine that lacks something: one line with the remedy, and nothing installed or started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PREFLIGHT = ROOT / "scripts" / "install" / "preflight.py"


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _preflight(*arguments: str, **environment: str) -> tuple[int, str]:
    env = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "LAKEPROOF_PG_USER")}
    command = [sys.executable, str(PREFLIGHT), *arguments]
    done = subprocess.run(command, env=env | environment, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def _one_line(status: int, message: str, *words: str) -> None:
    assert status == 2
    assert message.startswith("lakeproof: ")
    assert message.count("\n") == 1
    for word in words:
        assert word in message


def test_a_machine_with_everything_passes_without_a_word() -> None:
    """The machine that runs this test has what it needs."""
    assert _preflight("--server") == (0, "")


@pytest.mark.parametrize(
    ("version", "major"), [('openjdk version "11.0.2" 2019-01-15', "Java 11"), ('java version "1.8.0_402"', "Java 8")]
)
def test_a_java_that_is_too_old_is_named(tmp_path: Path, version: str, major: str) -> None:
    """Both version schemes of Java are understood."""
    _program(tmp_path / "bin" / "java", f"echo '{version}' >&2")
    _one_line(*_preflight(JAVA_HOME=str(tmp_path)), major, "17", "JAVA_HOME")


def test_a_java_home_without_java_is_named() -> None:
    """JAVA_HOME wins over PATH, as in Spark's own scripts, so a wrong one is a mistake."""
    _one_line(*_preflight(JAVA_HOME="/nowhere"), "JAVA_HOME=/nowhere", "openjdk-17")


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    """A PATH that has a bash but no java."""
    (tmp_path / "bash").symlink_to("/bin/bash")
    _one_line(*_preflight(PATH=str(tmp_path)), "no java on PATH", "openjdk-17")


def test_a_missing_bash_is_named(tmp_path: Path) -> None:
    """Spark's start scripts need it."""
    _one_line(*_preflight(PATH=str(tmp_path)), "bash")


def test_a_busy_port_is_named_with_another_to_try() -> None:
    """Found before anything is set up, not when the web server starts minutes later."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _one_line(*_preflight("--port", str(port)), f"port {port} is in use", "PORT=")


@pytest.mark.parametrize("port", ["", "0", "65536", "http", "-1", "3000 "])
def test_what_is_no_port_is_refused(port: str) -> None:
    """PORT comes from a command line."""
    _one_line(*_preflight(f"--port={port}"), "is not a port")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")
def test_root_without_an_unprivileged_user_is_refused() -> None:
    """PostgreSQL refuses to run as root."""
    _one_line(*_preflight("--server", LAKEPROOF_PG_USER="nobody-of-this-name"), "refuses to run as root", "useradd")


def _find_python(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "scripts" / "install" / "find_python.sh")
    return subprocess.run(
        ["/bin/sh", script], env={"PATH": str(path), **environment}, capture_output=True, text=True, check=False
    )


def test_the_first_python_that_fits_is_taken(tmp_path: Path) -> None:
    """An old python3 in front, a shim that does not run, then one that fits."""
    _program(tmp_path / "python3", "exit 1")
    _program(tmp_path / "python3.13", "echo 'not in this version' >&2; exit 127")
    fits = _program(tmp_path / "python3.12", "exit 0")
    done = _find_python(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(fits))


def test_an_old_python_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """The version that was found is named."""
    _program(tmp_path / "python3", 'if [ "$1" = --version ]; then echo Python 3.8.10; else exit 1; fi')
    done = _find_python(tmp_path)
    _one_line(done.returncode, done.stderr, "Python 3.8.10", "3.10 to 3.13")


def test_a_missing_python_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """An empty PATH."""
    done = _find_python(tmp_path)
    _one_line(done.returncode, done.stderr, "no python3", "apt install")


def test_a_python_without_venv_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """Debian keeps venv and ensurepip in a separate package."""
    _program(tmp_path / "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    done = _find_python(tmp_path)
    _one_line(done.returncode, done.stderr, "python3-venv")


def test_a_python_named_by_hand_must_fit(tmp_path: Path) -> None:
    """PYTHON= is not silently replaced by another."""
    wrong = _program(tmp_path / "mine", "exit 1")
    _program(tmp_path / "python3", "exit 0")
    done = _find_python(tmp_path, PYTHON=str(wrong))
    _one_line(done.returncode, done.stderr, f"PYTHON={wrong}")
