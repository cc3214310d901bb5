"""Finds a Chromium for the tests of the UI, or installs Debian's as root.

Driving it does not belong here (`tests/shell/browsing.py`). Playwright's own browsers are not used: they come from a host of
their own, and Debian's is kept up to date with the machine. Without a browser those tests are skipped, with the reason.

    .venv/bin/python scripts/browser.py            prints its path; installs it if there is none, some 300 MB
"""

from __future__ import annotations

import os
import shutil
import sys

from scripts import debian

VARIABLE = "LAKEPROOF_BROWSER"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
REMEDY = f"run .venv/bin/python scripts/browser.py as root on Debian, or set {VARIABLE} to a Chromium"


class BrowserError(Exception):
    """There is no browser, and none could be installed; `str()` has the reason and the remedy."""


def main() -> int:
    """Return 0 if there is a browser now, 2 with one line on stderr if not."""
    try:
        print(find() or install(), flush=True)
    except BrowserError as error:
        print(f"lakeproof: {error}", file=sys.stderr)
        return 2
    return 0


def find() -> str | None:
    """Return the program's path, None if this machine has none."""
    configured = os.environ.get(VARIABLE)
    programs = (configured,) if configured else _PROGRAMS
    return next((path for program in programs if (path := shutil.which(program)) is not None), None)


def arguments() -> list[str]:
    """Return the arguments that Chromium needs here: as root it starts only without its sandbox."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


def install() -> str:
    """Install Debian's package and return the program's path; raises BrowserError."""
    try:
        debian.install(["chromium", "fonts-dejavu-core"], REMEDY)
    except debian.PackageError as error:
        raise BrowserError(str(error)) from None
    program = find()
    if program is None:
        raise BrowserError(f"Debian's package chromium brought no program; {REMEDY}")
    return program


if __name__ == "__main__":
    sys.exit(main())
