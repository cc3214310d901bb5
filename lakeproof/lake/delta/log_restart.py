"""The files of a log that begins again: commits that can't be read are removed, and a checkpoint stands in their place.

When to do that, and with which rows, does not belong here but in `lakeproof.lake.cycle.broken_log` and `portable`. Nothing
is synced: the cycle syncs what is above the cut's versions before the next cut names it.
"""

from __future__ import annotations

import json
from contextlib import suppress

from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.files import files_of_commit
from lakeproof.lake.delta.log import LOG, LogGapError, commit_name, log_files, read_actions
from lakeproof.lake.delta.unnamed_commits import remove_above
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import AlreadyExistsError, NotFoundError

# A name that begins with `_` is neither a partition nor a file to Delta.
_SCRATCH = "_written_anew"
_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


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


def scratch_place(path: str) -> str:
    """Return an empty place below the table at `path`: in one store with it, and no part of it to any reader.

    Maintenance removes what a killed process leaves there.
    """
    remove_place(f"{path}/{_SCRATCH}")
    return f"{path}/{_SCRATCH}"


def remove_place(place: str) -> None:
    """Remove a place with everything in it."""
    folder = Folder.at(place)
    folder.store.delete_all(folder.key)


def move_in(path: str, new_table: str, version: int) -> None:
    """Give `version` the state of the table at `new_table`, and its files: as `begin_at`. The place is removed."""
    old, new = Folder.at(path), Folder.at(new_table)
    for file in files_of_commit(new, commit_name(0))[1]:
        _link(old, new, file.path)
        # The checksums beside it come with it.
        beside = new.store.checksum_key(file.path)
        if beside is not None:
            _link(old, new, beside)
    failpoint("cycle.after_moved_in")
    begin_at(path, version, new_table)
    remove_place(new_table)


def _link(old: Folder, new: Folder, name: str) -> None:
    """Give a file the same name in the other folder, if it is there: names are unique, so what has it is this file."""
    with suppress(AlreadyExistsError, NotFoundError):
        old.store.link(new.key_of(name), old.key_of(name))


def begin_at(path: str, version: int, new_table: str) -> None:
    """Give `version` the state of the table at `new_table`, which has one commit and its checkpoint."""
    old, new = Folder.at(path), Folder.at(new_table)
    _copy(new, f"{LOG}/{0:020d}.checkpoint.parquet", old, f"{LOG}/{version:020d}.checkpoint.parquet")
    failpoint("cycle.after_checkpoint")
    size = json.loads(new.get(_LAST_CHECKPOINT))["size"]
    old.delete(f"{LOG}/._last_checkpoint.crc")
    old.store.put(old.key_of(_LAST_CHECKPOINT), json.dumps({"version": version, "size": size}).encode())
    _copy(new, commit_name(0), old, commit_name(version))
    failpoint("cycle.after_log_begun")


def _copy(new: Folder, new_name: str, old: Folder, old_name: str) -> None:
    """Copy a file of a log, which is small."""
    old.store.put(old.key_of(old_name), new.get(new_name))
