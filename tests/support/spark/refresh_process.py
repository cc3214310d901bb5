"""A refresh of one view in its own process, to be stopped: `python -m tests.support.spark.refresh_process LAKE STORAGE SQL`.

STORAGE is the section `storage` as JSON, SQL the view's file. The failpoint comes from the environment. An error of the
engine's is printed, and its status is the process's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakeproof.commands.refresh import refresh
from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import LakeproofError
from lakeproof.lake.spark.driver import stop_session
from lakeproof.lake.spark.session import build_session
from lakeproof.names import TableName
from tests.support.lake.lake_steps import make_config
from tests.support.lake.simulated_source import SOURCE
from tests.support.spark.fix_lake import SPARK

VIEW, TABLE = "even", TableName("app", "full")


def with_view(place: LakeLocation, file: Path) -> Config:
    """The configuration of a simulated source, with one view over one table."""
    view = ViewConfig(name=VIEW, sql_file=file, reads={"t": (SOURCE, TABLE)})
    return make_config(place).model_copy(update={"views": {VIEW: view}})


def main(place: LakeLocation, file: Path) -> int:
    """Refresh the view; return the exit status."""
    session = build_session(SPARK, "lakeproof stopped refresh", s3=place.storage)
    try:
        refresh(with_view(place, file), None, session)
    except LakeproofError as error:
        sys.stdout.write(f"{error}\n")
        return error.exit_status
    finally:
        # Its JVM may have been killed.
        stop_session(session)
    return 0


if __name__ == "__main__":
    url, storage, sql = sys.argv[1:]
    sys.exit(main(LakeLocation(url, StorageConfig.model_validate_json(storage)), Path(sql)))
