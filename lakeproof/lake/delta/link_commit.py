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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import STATISTICS_COLUMNS, needs_mapping, quoted
from lakeproof.lake.delta.apply import ONE_ATTEMPT, conflicts, version_to_follow
from lakeproof.lake.delta.commit import USER_METADATA, Applied, CommitInfo, TableSpec, WriteStrategy
from lakeproof.lake.delta.file_statistics import statistics_text
from lakeproof.lake.delta.jvm import ExistingFile, Transaction
from lakeproof.lake.delta.links import LandedFile, PlacedFile, mismatch, place, remove_placed
from lakeproof.lake.delta.log import NO_VERSION, find_commit
from lakeproof.lake.delta.self_test import unsupported_reason
from lakeproof.lake.delta.vectors import FILES_MAX, Rows, Unsupported, is_known
from lakeproof.lake.spark.session import with_settings

# Letters that a path in the log has as they are: everything else would have to be encoded.
_NAME = re.compile(r"[0-9a-z][0-9A-Za-z.-]*\.parquet")


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
    """One commit that adds files to the table at `path`, and `rows` beside them; `create` as in a `CommitRequest`.

    `required`: the table's columns that every file must have. `statistics` as in a `TableSpec`.
    """

    path: str
    info: CommitInfo
    links: Sequence[Link]
    required: Sequence[str]
    expected_version: int
    statistics: tuple[str, ...] = ()
    rows: DataFrame | None = None
    create: NewTable | None = None


@dataclass(frozen=True, slots=True)
class PreparedLinks:
    """A commit that can be made, once, on top of version `before`: every file is in the table's folder."""

    session: SparkSession
    request: LinkRequest
    before: int
    files: Sequence[ExistingFile]

    def commit(self) -> Applied:
        """Commit the files, and the rows that come beside them."""
        request, info = self.request, self.request.info
        version_to_follow(request.path, self.before, info)
        settings = {USER_METADATA: info.user_metadata, **ONE_ATTEMPT}
        with with_settings(self.session, settings), conflicts(request.path):
            rows = self._commit()
        commit = find_commit(request.path, self.before, info.is_in)[1]
        if commit is None:
            raise InvariantError(request.path, f"cycle {info.number} left no commit", "report this")
        return Applied(commit.version, rows, 0, WriteStrategy.LINK)

    def _commit(self) -> int:
        request, info = self.request, self.request.info
        txn = _transaction(self.session, request, self.before)
        if request.create is not None and self.before == NO_VERSION:
            txn.update_metadata(_metadata(request.create))
        txn.read_all(())
        txn.add_files(self.files)
        rows = sum(link.rows for link in request.links)
        rows += 0 if request.rows is None else txn.add_rows(request.rows)
        size = sum(file.entry["size"] for file in self.files)
        txn.measure({"numFiles": len(self.files), "numOutputRows": rows, "numOutputBytes": size})
        failpoint("apply.before_commit")
        txn.commit_append(info.app_id, info.number, info.user_metadata)
        return rows


def prepare_links(session: SparkSession, request: LinkRequest) -> PreparedLinks:
    """Place and check the files, and commit nothing yet.

    Raises `Unsupported` if Spark should write the rows instead, LakeError about a damaged file, and otherwise as
    `apply.prepare`. Nothing is in the table's folder then.
    """
    before = version_to_follow(request.path, request.expected_version, request.info)
    reason = unsupported_reason(session)
    if reason is not None:
        raise Unsupported(reason)
    if len(request.links) > FILES_MAX:
        raise Unsupported(f"{len(request.links):,} files are more than {FILES_MAX:,}")
    fields = _fields(session, request, before)
    placed = _place_all(request, fields)
    failpoint("apply.after_links")
    columns = _statistics_columns(fields, request.statistics)
    files = [
        ExistingFile(_entry(file, columns), link.left_out) for file, link in zip(placed, request.links, strict=True)
    ]
    return PreparedLinks(session, request, before, files)


def _place_all(request: LinkRequest, fields: Sequence[Mapping[str, Any]]) -> Sequence[PlacedFile]:
    """Return the files in the table's folder: all of them, or an error and none."""
    folder, placed, reason = Path(request.path), list[PlacedFile](), None
    try:
        for link in request.links:
            file = place(link.landed, folder, linked_name(request.info, link.landed))
            placed.append(file)
            reason = reason or mismatch(file.footer, fields, request.required)
    except BaseException:
        _remove_all(folder, placed)
        raise
    if reason is not None:
        _remove_all(folder, placed)
        raise Unsupported(reason)
    return placed


def _remove_all(folder: Path, placed: Iterable[PlacedFile]) -> None:
    for file in placed:
        remove_placed(folder, file.name)


def linked_name(info: CommitInfo, landed: LandedFile) -> str:
    """Return a landed file's name in a table's folder: no other file of the table ever has it."""
    name = f"cycle-{info.number:012d}-{landed.place.name}"
    if not _NAME.fullmatch(name):
        raise InvariantError(
            str(landed.place), "its name has letters that a path in Delta's log has not", "report this"
        )
    return name


def rows_outside(first: int, last: int, rows: int) -> Rows | None:
    """Return the numbers of a file's rows outside [first, last), None if there are none."""
    if first <= 0 and last >= rows:
        return None
    return np.concatenate([np.arange(0, first), np.arange(last, rows)]).astype(np.int64)


def _transaction(session: SparkSession, request: LinkRequest, before: int) -> Transaction:
    txn = Transaction(session, request.path)
    if txn.version != before:
        raise Unsupported("another version is the newest")
    return txn


def _fields(session: SparkSession, request: LinkRequest, before: int) -> Sequence[Mapping[str, Any]]:
    """Return the table's columns as Delta's schema text has them; raises `Unsupported` for a table that was not tried."""
    if before == NO_VERSION:
        if request.create is None:
            raise InvariantError(request.path, "there is no Delta table, and none is to be created", "report this")
        if needs_mapping(request.create.columns):
            raise Unsupported("a column's name has a letter that Parquet refuses")
        return _new_fields(request.create)
    txn = _transaction(session, request, before)
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
