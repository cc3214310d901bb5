"""Commit by links: files that the copy or the drain has written become data files of a table, and no row of them is read.

    landed files ─► a second name in the table's folder, verified ─► statistics from their footers ─► one commit

Choosing the files, and the rows in them that are not the table's, does not belong here; nor does giving a file its second
name (`links`) or reading its footer (`file_statistics`).

A commit is made in two steps, as in `apply`: `prepare_links` places and checks every file, and refuses with `Unsupported`
whatever Spark should write instead; `PreparedLinks.commit` makes the one commit. In between nobody reads the placed files.

Idempotent: a killed attempt leaves links that no commit names. The next attempt has the same names and finds them there. A
name is a file's own, which its writer makes unique, behind the number of the cycle: Delta takes two files of one path for
one, and a file that a range enters in two parts is two files of the table.

Cost: one pass over the bytes of the files for their checksums, and per file the read of a footer and an action in the log
(0.5 ms). No Spark job but for rows that come beside the files.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lakeproof.errors import InvariantError, NoRoomError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import needs_mapping, quoted
from lakeproof.lake.delta.apply import conflicts, one_attempt, version_to_follow
from lakeproof.lake.delta.commit import (
    NO_HINTS,
    USER_METADATA,
    Applied,
    CommitInfo,
    CommitRequest,
    Hints,
    TableSpec,
    WriteStrategy,
)
from lakeproof.lake.delta.file_statistics import statistics_text
from lakeproof.lake.delta.files import files_of_commit
from lakeproof.lake.delta.jvm import ExistingFile, Transaction
from lakeproof.lake.delta.links import LandedFile, PlacedFile, mismatch, place, remove_placed, renamed
from lakeproof.lake.delta.local_rows import LocalRows, write_rows
from lakeproof.lake.delta.log import NO_VERSION, commit_name, find_commit
from lakeproof.lake.delta.self_test import other_version, unsupported_reason
from lakeproof.lake.delta.vectors import FILES_MAX, FoundRows, Rows, Unsupported, find_rows, is_known
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.spark.session import with_settings
from lakeproof.landing.file_columns import STATISTICS_COLUMNS
from lakeproof.storage.disk import is_full
from lakeproof.storage.folder import Folder

# Letters that a path in the log has as they are: everything else would have to be encoded.
_NAME = re.compile(r"[0-9a-z][0-9A-Za-z.-]*\.parquet")
NO_CHANGE = NetChange()


@dataclass(frozen=True, slots=True)
class Link:
    """A landed file to be linked; `left_out`: the numbers of its rows that are not the table's, None if all are."""

    landed: LandedFile
    left_out: Rows | None = None

    @property
    def rows(self) -> int:
        """The number of rows that the table gets."""
        return self.landed.rows - (0 if self.left_out is None else len(self.left_out))


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to be created: its columns with their Spark types, in order, and its properties."""

    columns: Mapping[str, str]
    spec: TableSpec


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """One commit that adds files to the table at `path`, and applies `change` beside them; `create`, `hints` as elsewhere.

    `rows`: rows of one schema that this process reads or holds, `row_count` of them: they become more files. `required`: the
    table's columns that every file must have. `statistics` as in a `TableSpec`. `change` deletes none of the files' rows.
    """

    path: str
    info: CommitInfo
    links: Sequence[Link]
    required: Sequence[str]
    expected_version: int
    statistics: tuple[str, ...] = ()
    change: NetChange = NO_CHANGE
    hints: Hints = NO_HINTS
    create: NewTable | None = None
    rows: LocalRows = ()
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class PreparedLinks:
    """A commit that can be made, once, on top of version `before`: every file is in the table's folder.

    `rows` are those to delete; None for a new table, and if there is no change beside the files. `txn` has read `before`;
    None for a new table.
    """

    session: SparkSession
    request: LinkRequest
    before: int
    files: Sequence[ExistingFile]
    rows: FoundRows | None = None
    txn: Transaction | None = None

    def commit(self) -> Applied:
        """Commit the files, and the rows that come beside them."""
        request, info = self.request, self.request.info
        version_to_follow(request.path, self.before, info)
        metadata = with_settings(self.session, {USER_METADATA: info.user_metadata})
        with metadata, one_attempt(self.session, request.path, self.before), conflicts(request.path):
            counts = self._commit()
        if counts is None:
            return Applied(self.before, 0, 0)
        inserted, deleted = counts
        commit = find_commit(request.path, self.before, info.is_in)[1]
        if commit is None:
            raise InvariantError(request.path, f"cycle {info.number} left no commit", "report this")
        self._check(commit.version)
        return Applied(commit.version, inserted, deleted, WriteStrategy.LINK)

    def discard(self) -> None:
        """Take the files out of the table's folder again, if the commit is not to be made."""
        for file in self.files:
            remove_placed(Folder.at(self.request.path), file.entry["path"])

    def _check(self, version: int) -> None:
        """Raise InvariantError unless the log has each file once: then no cut names the commit."""
        _, added = files_of_commit(Folder.at(self.request.path), commit_name(version))
        names = Counter(file.path for file in added)
        if any(names[file.entry["path"]] != 1 for file in self.files):
            raise InvariantError(self.request.path, f"version {version} has not each linked file once", "report this")

    def _commit(self) -> tuple[int, int] | None:
        """Return how many rows are inserted and deleted; None if there is nothing to commit."""
        request, info = self.request, self.request.info
        txn = self.txn or _transaction(self.session, request, self.before)
        if request.create is not None and self.before == NO_VERSION:
            txn.update_metadata(_metadata(request.create))
        images, places = request.change.images, None if self.rows is None else self.rows.places
        if self.rows is None:
            txn.read_all(())
        else:
            images = self.rows.images
        deleted = 0 if self.rows is None or places is None else txn.remove_rows(places, self.rows.files)
        txn.add_files(self.files)
        inserted = sum(link.rows for link in request.links) + request.row_count
        inserted += 0 if images is None else txn.add_rows(images)
        if txn.is_empty and self.before != NO_VERSION:
            return None
        failpoint("apply.before_commit")
        if deleted:
            txn.commit(info.app_id, info.number, inserted=inserted, deleted=deleted)
        else:
            size = sum(file.entry["size"] for file in self.files)
            txn.measure({"numFiles": len(self.files), "numOutputRows": inserted, "numOutputBytes": size})
            txn.commit_append(info.app_id, info.number, info.user_metadata)
        return inserted, deleted


def prepare_links(session: SparkSession, request: LinkRequest) -> PreparedLinks:
    """Place and check the files, and commit nothing yet.

    Raises `Unsupported` if Spark should write the rows instead, LakeError about a damaged file, NoRoomError about a full
    disk, and otherwise as `apply.prepare`. Nothing is in the table's folder then.
    """
    before = version_to_follow(request.path, request.expected_version, request.info)
    change = request.change
    if change.truncate:
        raise Unsupported("the change truncates the table")
    # The try on a scratch table takes a cold JVM longer than all the rest, and files alone don't need it.
    deletes = change.deletes is not None or change.keys is not None
    has_vectors = deletes or any(link.left_out is not None for link in request.links)
    _refuse(unsupported_reason(session, request.path) if has_vectors else other_version(session))
    if len(request.links) > FILES_MAX:
        raise Unsupported(f"{len(request.links):,} files are more than {FILES_MAX:,}")
    txn = None if before == NO_VERSION else _transaction(session, request, before)
    fields = _new_table_fields(request) if txn is None else _fields(txn, request)
    # Before the search, which is a job: a table stays renamed, and this comes in every cycle.
    _refuse(renamed(fields, request.required))
    # What the change presupposes is checked before any file is placed: a refused table gets none.
    has_search = txn is not None and not change.is_empty
    rows = find_rows(session, _as_commit(request), before, txn) if has_search else None
    columns = _statistics_columns(fields, request.statistics)
    placed = _place_all(request, fields, columns)
    failpoint("apply.after_links")
    left_out = (link.left_out for link in request.links)
    files = [ExistingFile(_entry(file, columns), next(left_out, None)) for file in placed]
    return PreparedLinks(session, request, before, files, rows, txn)


def _refuse(reason: str | None) -> None:
    """Raise `Unsupported` if there is a reason."""
    if reason is not None:
        raise Unsupported(reason)


def _as_commit(request: LinkRequest) -> CommitRequest:
    return CommitRequest(request.path, request.change, request.info, request.hints)


def _place_all(
    request: LinkRequest, fields: Sequence[Mapping[str, Any]], statistics: Iterable[str]
) -> Sequence[PlacedFile]:
    """Return the files in the table's folder, those of `rows` last: all of them, or an error and none."""
    folder, placed = Folder.at(request.path), list[PlacedFile]()
    links = (place(link.landed, folder, linked_name(request.info, link.landed)) for link in request.links)
    try:
        for file in chain(links, _written(request, folder, statistics)):
            placed.append(file)
            _refuse(mismatch(file.footer, fields, request.required))
    except BaseException as error:
        for file in placed:
            remove_placed(folder, file.name)
        if isinstance(error, OSError) and is_full(error):
            # This process writes here, and not Spark, whose errors become ours elsewhere.
            failed = f"writing a file of it failed: {error.strerror}"
            raise NoRoomError(request.path, failed, "make room, then run it again") from error
        raise
    return placed


def linked_name(info: CommitInfo, landed: LandedFile) -> str:
    """Return a landed file's name in a table's folder: no other file of the table ever has it."""
    name = f"cycle-{info.number:012d}-{landed.name}"
    if not _NAME.fullmatch(name):
        raise InvariantError(landed.url, "its name has letters that a path in Delta's log has not", "report this")
    return name


def _written(request: LinkRequest, folder: Folder, statistics: Iterable[str]) -> Iterator[PlacedFile]:
    return write_rows(request.rows, folder, f"rows-{request.info.number:012d}-", {*statistics})


def _transaction(session: SparkSession, request: LinkRequest, before: int) -> Transaction:
    txn = Transaction(session, request.path)
    if txn.version != before:
        raise Unsupported("another version is the newest")
    return txn


def _new_table_fields(request: LinkRequest) -> Sequence[Mapping[str, Any]]:
    """Return the columns that the table is to have, as Delta's schema text has them; raises `Unsupported`."""
    if request.create is None:
        raise InvariantError(request.path, "there is no Delta table, and none is to be created", "report this")
    if needs_mapping(request.create.columns):
        raise Unsupported("a column's name has a letter that Parquet refuses")
    if request.create.spec.portable and any(link.left_out is not None for link in request.links):
        raise Unsupported("it is configured with `readers: portable`, and rows of its files are not the table's")
    return _new_fields(request.create)


def _fields(txn: Transaction, request: LinkRequest) -> Sequence[Mapping[str, Any]]:
    """Return the table's columns as Delta's schema text has them; raises `Unsupported` for a table that was not tried."""
    if not is_known(txn):
        raise Unsupported("the table has partitions, or features that were not tried")
    if any(link.left_out is not None for link in request.links) and not txn.has_property(
        "delta.enableDeletionVectors", "true"
    ):
        raise Unsupported("the table has no delta.enableDeletionVectors")
    return txn.fields


def _new_fields(table: NewTable) -> Sequence[Mapping[str, Any]]:
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in table.columns.items())
    return list(json.loads(T.StructType.fromDDL(ddl).json())["fields"])


def _metadata(table: NewTable) -> Mapping[str, Any]:
    """Return a new table's `metaData` action."""
    configuration = table.spec.options(list(table.columns))
    if any("timestamp_ntz" in kind for kind in table.columns.values()):
        # Delta switches every other feature on by itself.
        configuration["delta.feature.timestampNtz"] = "supported"
    return {
        "metaData": {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": _new_fields(table)}),
            "partitionColumns": [],
            "configuration": configuration,
            "createdTime": int(time.time() * 1000),
        }
    }


def _statistics_columns(fields: Sequence[Mapping[str, Any]], chosen: Sequence[str]) -> Mapping[str, str]:
    """Return the columns that get statistics with their Spark types: the chosen ones, or Delta's own choice."""
    types = {field["name"]: T._parse_datatype_json_value(field["type"]).simpleString() for field in fields}  # noqa: SLF001  Delta's schema is Spark's
    names = chosen or list(types)[:STATISTICS_COLUMNS]
    return {name: types[name] for name in names if name in types}


def _entry(file: PlacedFile, columns: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "path": file.name,
        "partitionValues": {},
        "size": file.bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": statistics_text(file.footer, columns),
    }
