"""The files of a log that begins again: commits that can't be read are removed, and a checkpoint stands in their place.

The occasion for it is in `lakeproof.lake.cycle.broken_log`. Nothing is synced: the cycle syncs what is above the cut's
versions before the next cut names it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.checkpoint import write_checkpoint
from lakeproof.lake.delta.log import LOG, LogGapError, commit_name, digest_of, log_files, read_actions
from lakeproof.lake.delta.protocol import protocol_for
from lakeproof.lake.delta.state import TableState
from lakeproof.lake.delta.unnamed_commits import remove_above
from lakeproof.storage.folder import Folder


def remove_unreadable(path: str, version: int) -> None:
    """Remove everything above `version`, and every commit that is damaged."""
    table = Folder.at(path)
    remove_above(path, version)
    # Delta reads an emptied file as a commit of nothing. Without the file, older cuts give an error, never other rows.
    for name in sorted(log_files(table)):
        if name[:1].isdigit() and name.endswith(".json"):
            try:
                read_actions(table, f"{LOG}/{name}")
            except LogGapError:
                table.delete(f"{LOG}/{name}")


def begin_at(path: str, version: int, metadata: Mapping[str, Any], user_metadata: str) -> None:
    """Give `version` a state without rows, with these columns and properties; nothing below it is needed any more."""
    table = Folder.at(path)
    protocol = protocol_for(metadata, None)
    described = {
        "timestamp": int(time.time() * 1000),
        "operation": "CREATE TABLE",
        "operationParameters": {},
        "isBlindAppend": False,
        "engineInfo": "lakeproof",
        "txnId": str(uuid.uuid4()),
        "userMetadata": user_metadata,
    }
    actions = [("commitInfo", described), ("protocol", protocol), ("metaData", metadata)]
    data = "".join(json.dumps({kind: action}, ensure_ascii=False) + "\n" for kind, action in actions).encode()
    state = TableState(path, version, digest_of(data), protocol, metadata)
    write_checkpoint(table, state)
    failpoint("cycle.after_log_begun")
    table.store.put(table.key_of(commit_name(version)), data)
    failpoint("cycle.after_log_begun_commit")
