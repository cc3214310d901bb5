"""A compaction in its own process, to be killed: `python -m tests.compact_process LAKE`.

The failpoint comes from the environment; the simulated source's server is never asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakeproof.commands.compact import compact
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.session import build_session
from tests.fix_lake import SPARK
from tests.lake_steps import make_config
from tests.simulated_source import SOURCE


def main(lake: Path) -> None:
    """Compact all there is."""
    session = build_session(SPARK, "lakeproof killed compaction")
    compact(make_config(lake), SOURCE, session, silent, Stop())
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
