"""A follower in its own process, to be killed: `python -m tests.support.spark.follow_process LAKE`.

The failpoint comes from the environment; the simulated source's server is never asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakeproof.commands.compact import follow
from lakeproof.events import RunControl
from lakeproof.lake.spark.session import build_session
from tests.support.lake.lake_steps import make_config
from tests.support.lake.simulated_source import SOURCE
from tests.support.spark.fix_lake import SPARK


def main(lake: Path) -> None:
    """Follow until it is killed."""
    session = build_session(SPARK, "lakeproof killed follower")
    follow(make_config(lake), SOURCE, session, RunControl())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
