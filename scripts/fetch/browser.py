"""Finds a Chromium for the tests of the UI, or installs Debian's as root.

Driving it does not belong here (`tests/support/shell/browsing.py`). Playwright's own browsers are not used: they come
from a host of their own, and Debian's is kept up to date with the machine. Without a browser those tests are skipped,
with the reason.

The UI is tested in a browser because tests of definitions and of GraphQL pass while a check is red on its page. The manual's
pictures are of states that these tests reach.

    .venv/bin/python scripts/fetch/browser.py            prints its path; installs it if there is none, some 300 MB
"""

from __future__ import annotations

import os
import sys

from scripts.fetch.debian import Program

_VARIABLE = "LAKEPROOF_BROWSER"
CHROMIUM = Program(
    _VARIABLE,
    places=("chromium", "chromium-browser", "google-chrome"),
    packages=("chromium", "fonts-dejavu-core"),
    remedy=f"run .venv/bin/python scripts/fetch/browser.py as root on Debian, or set {_VARIABLE} to a Chromium",
)


def arguments() -> list[str]:
    """Return the arguments that Chromium needs here: as root it starts only without its sandbox."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


if __name__ == "__main__":
    sys.exit(CHROMIUM.main())
