"""Dagster's web server behind the request guard: `python -m orchestration.webserver`, arguments as `dagster-webserver`.

The rules of the guard do not belong here (`request_guard.py`).

LAKEPROOF_UI_HOSTS: host names by which browsers may reach it, separated by commas, besides those of the loopback address.
LAKEPROOF_UI_LOGIN_FILE: a file with one line `user:password`, required by HTTP basic authentication.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware

from orchestration.request_guard import LOOPBACK_HOSTS, RequestGuard

HOSTS = "LAKEPROOF_UI_HOSTS"
LOGIN_FILE = "LAKEPROOF_UI_LOGIN_FILE"


def guard() -> Middleware:
    """Return the middleware as the environment configures it; raises ValueError if the file has no login."""
    names = {name.strip() for name in os.environ.get(HOSTS, "").split(",")} - {""}
    file = os.environ.get(LOGIN_FILE)
    login = None if file is None else read_login(Path(file))
    return Middleware(RequestGuard, hosts=LOOPBACK_HOSTS | names, login=login)


def read_login(file: Path) -> tuple[str, str]:
    """Return user and password; raises ValueError naming the file."""
    user, colon, password = file.read_text(encoding="utf-8").rstrip("\r\n").partition(":")
    if not (user and colon and password):
        raise ValueError(f"{file}: it is not one line user:password; write it like that, readable by this user alone")
    return user, password


def _guarded(original: Any, outermost: Middleware) -> Any:
    def build_middleware(self: DagsterWebserver[Any, Any]) -> list[Middleware]:
        return [outermost, *original(self)]

    return build_middleware


def serve() -> None:
    """Run the server; ends with status 2 and one line on stderr if the login can't be read."""
    try:
        outermost = guard()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"lakeproof: {error}\n")
        sys.exit(2)
    # Dagster has no setting for this; every app it creates uses the middleware of this method.
    DagsterWebserver.build_middleware = _guarded(DagsterWebserver.build_middleware, outermost)  # type: ignore[method-assign]  # on purpose
    main()  # type: ignore[no-untyped-call]  # Click's command has no types


if __name__ == "__main__":
    serve()
