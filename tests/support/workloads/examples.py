"""The number of examples that hypothesis makes of a claim."""

from __future__ import annotations

import os

# Set by `--full` (tests/conftest.py).
FULL = "LAKEPROOF_FULL"


def examples(usual: int) -> int:
    """Return so many, or ten times as many in a full run."""
    return usual * (10 if os.environ.get(FULL) else 1)
