"""Checks this machine before anything is installed or started, with the standard library alone.

A check changes nothing, and reports one line with the remedy. Installing does not belong here (`setup.py`).
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JAVA_OLDEST = 17
# The environment takes 1.5 GB, the jars 0.1, the demonstration's two databases 0.5.
FREE_BYTES = 3 * 1024**3
_CANDIDATES = ("postgres", "nobody")
_JAVA_REMEDY = "install Java 17 or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME to one"


class PreflightError(Exception):
    """Something this machine lacks; `str()` is the one line to print."""


def java() -> str:
    """Return the version of the Java that Spark will start; raises PreflightError if there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    # The same rule as in Spark's own scripts: JAVA_HOME takes precedence over PATH.
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise PreflightError(f"there is no java on PATH; {_JAVA_REMEDY}")
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        reason = f"JAVA_HOME={home} has no working bin/java" if home else f"{program} does not run"
        raise PreflightError(f"{reason}; {_JAVA_REMEDY}") from None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if version is None:
        raise PreflightError(f"{program} -version prints no version; {_JAVA_REMEDY}")
    # Java 8 calls itself 1.8.
    major = int(version[2] or 0) if version[1] == "1" else int(version[1])
    if major < JAVA_OLDEST:
        raise PreflightError(f"{program} is Java {major}, and Spark needs {JAVA_OLDEST}; {_JAVA_REMEDY}")
    return str(major)


def bash() -> None:
    """Raise PreflightError without bash: Spark's start scripts need it."""
    if shutil.which("bash") is None:
        raise PreflightError("there is no bash on PATH, and Spark starts through it; install bash")


def disk() -> None:
    """Raise PreflightError if the checkout is not writable, or has less than `FREE_BYTES` and no environment yet."""
    free = shutil.disk_usage(ROOT).free
    if not (ROOT / ".venv").exists() and free < FREE_BYTES:
        raise PreflightError(
            f"{ROOT} has {free / 1024**3:.1f} GB free, and setting up takes 3 GB; free some space, or clone elsewhere"
        )
    if not os.access(ROOT, os.W_OK):
        raise PreflightError(f"{ROOT} is not writable for this user; clone it to a folder that is")


def unprivileged_user() -> None:
    """Raise PreflightError for root without another user to run the server as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return
    configured = os.environ.get("LAKEPROOF_PG_USER")
    for name in (configured,) if configured else _CANDIDATES:
        try:
            if pwd.getpwnam(name).pw_uid != 0:
                return
        except KeyError:
            continue
    raise PreflightError(
        f"PostgreSQL refuses to run as root and there is no unprivileged user {configured or ' or '.join(_CANDIDATES)}; "
        "create one (useradd --system postgres), name one in LAKEPROOF_PG_USER, or run as an ordinary user"
    )


def port(number: str, target: str) -> None:
    """Raise PreflightError unless `number` is a free port; `target` is the target of make, for the message."""
    if not number.isdecimal() or not 1 <= int(number) <= 65535:
        raise PreflightError(f"PORT={number} is not a port; choose one between 1024 and 65535: make {target} PORT=3001")
    with socket.socket() as probe:
        # Like the web server: a port that lingers after a close counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(number)))
        except PermissionError:
            raise PreflightError(
                f"port {number} may only be used by root; choose another: make {target} PORT=3001"
            ) from None
        except OSError:
            other = int(number) % 65535 + 1
            raise PreflightError(f"port {number} is in use; choose another: make {target} PORT={other}") from None


def check(*, ui_port: str | None, server: bool) -> None:
    """Run all checks that apply, cheapest first; raises PreflightError for the first that fails."""
    if not sys.platform.startswith("linux"):
        raise PreflightError(
            f"the demonstration and the tests run on Linux, not on {sys.platform}; use a container or a VM"
        )
    if ui_port is not None:
        port(ui_port, "demo" if server else "ui")
    if server:
        unprivileged_user()
    bash()
    disk()
    java()


def main() -> int:
    """Return 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", help="the port that must be free")
    parser.add_argument("--server", action="store_true", help="an embedded PostgreSQL will be started")
    arguments = parser.parse_args()
    try:
        check(ui_port=arguments.port, server=arguments.server)
    except PreflightError as error:
        print(f"lakeproof: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
