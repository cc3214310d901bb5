"""A compaction in its own process, to be killed or stopped: `python -m tests.support.spark.compact_process LAKE [STORAGE]`.

STORAGE is the section `storage` of a lake in an object store, as JSON. The failpoint comes from the environment, and who
writes tables (`LAKEPROOF_TEST_ENGINE=spark`: Spark alone); the simulated source's server is never asked. An error of the
engine's is printed, and its status is the process's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lakeproof.commands.compact import compact
from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.errors import LakeproofError
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.driver import stop_session
from lakeproof.lake.spark.session import build_session
from tests.support.lake.lake_steps import make_config
from tests.support.lake.simulated_source import SOURCE
from tests.support.spark.fix_lake import SPARK

ENGINE = "LAKEPROOF_TEST_ENGINE"


def main(lake: Path | LakeLocation) -> int:
    """Compact all there is; return the exit status."""
    s3 = lake.storage if isinstance(lake, LakeLocation) else None
    session = build_session(SPARK, "lakeproof killed compaction", s3=s3)
    try:
        config = make_config(lake, engine="spark" if os.environ.get(ENGINE) == "spark" else "auto")
        compact(config, SOURCE, session, silent, Stop())
    except LakeproofError as error:
        sys.stdout.write(f"{error}\n")
        return error.exit_status
    finally:
        # Its JVM may have been killed.
        stop_session(session)
    return 0


if __name__ == "__main__":
    url, *storage = sys.argv[1:]
    sys.exit(main(LakeLocation(url, StorageConfig.model_validate_json(storage[0])) if storage else Path(url)))
