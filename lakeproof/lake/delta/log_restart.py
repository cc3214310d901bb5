"""The files of a log that begins again: commits that can't be read are removed, and a checkpoint stands in their place.

When to do that, and with which rows, does not belong here but in `lakeproof.lake.cycle.broken_log`. Nothing is synced: the
cycle syncs what is above the cut's versions before the next cut names it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.log import LOG, LogGapError, commit_file, read_actions
from lakeproof.lake.delta.unnamed_commits import remove_above


def remove_unreadable(path: str, version: int) -> None:
    """Remove everything above `version`, and every commit that is damaged; make the log's folder if it is missing."""
    log = Path(path) / LOG
    log.mkdir(parents=True, exist_ok=True)
    remove_above(path, version)
    # Delta reads an emptied file as a commit of nothing. Without the file, older cuts give an error, never other rows.
    for file in sorted(log.glob("[0-9]*.json")):
        try:
            read_actions(file)
        except LogGapError:
            file.unlink()


def begin_at(path: str, version: int, new_table: str) -> None:
    """Give `version` the state of the table at `new_table`, which has one commit and its checkpoint."""
    log, new_log = Path(path) / LOG, Path(new_table) / LOG
    shutil.copyfile(new_log / f"{0:020d}.checkpoint.parquet", log / f"{version:020d}.checkpoint.parquet")
    failpoint("cycle.after_checkpoint")
    size = json.loads((new_log / "_last_checkpoint").read_bytes())["size"]
    (log / "._last_checkpoint.crc").unlink(missing_ok=True)
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": size}), encoding="utf-8")
    shutil.copyfile(commit_file(new_table, 0), commit_file(path, version))
    failpoint("cycle.after_log_begun")
