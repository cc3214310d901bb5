"""The location's Spark resource with the session that all tests of a process share.

Not for anything but tests: in Dagster each run has its own session.
"""

from __future__ import annotations

import dagster as dg

from resources import Compute


class SharedSpark(Compute):
    """The location's resource, but with the session that all tests of this process share."""

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        del context
