"""The files of tables of days that no reader needs any more: those of versions that were followed long ago.

A table's own files belong to `lakeproof.lake.delta.day_table`, when this runs to `lakeproof.commands.maintain`.

A version stays readable for as long as a cut does (`cuts_s`). While days are being made nothing is removed: a commit's files
are not in the log before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.delta.day_table import unneeded_by_readers
from lakeproof.lake.delta.files.needed import Unread, remove_file
from lakeproof.landing.retention import SpaceReclaimed, summed
from lakeproof.storage.source_lake import SourceLake

_REMEDY = "move that folder away, and make the days again"


def files_of_days(lake: SourceLake, limit: datetime, unread: dict[str, Unread]) -> Iterator[tuple[str, int]]:
    """Yield the files that nobody needs after `limit`, each with its bytes; add a table that can't be read to `unread`."""
    folder = lake.paths.all_daily
    for schema in lake.store.folders(folder):
        for table in lake.store.folders(f"{folder}/{schema}"):
            url = lake.url(f"{folder}/{schema}/{table}")
            try:
                yield from unneeded_by_readers(url, limit)
            except LakeError as error:
                unread[f"days of {schema}/{table}"] = Unread(error.reason, _REMEDY)


def planned_of_days(lake: SourceLake, limit: datetime, unread: dict[str, Unread]) -> SpaceReclaimed:
    """Return what would be removed, without a change."""
    return summed(SpaceReclaimed(1, size) for _, size in files_of_days(lake, limit, unread))


def remove_of_days(lake: SourceLake, limit: datetime, unread: dict[str, Unread]) -> SpaceReclaimed:
    """Remove those files; nothing while another process makes days."""
    freed = SpaceReclaimed()
    try:
        with lake.store.lock(lake.paths.daily_lock, f"{lake.source}: days", "another process makes days"):
            for place, size in files_of_days(lake, limit, unread):
                remove_file(place)
                freed = freed.plus(SpaceReclaimed(1, size))
    except TransientError:
        return freed
    return freed
