"""A commit by this process: landed files become data files of a table as they are, other rows become new files, rows go.

    landed files ─► a second name in the table's folder, verified ─► statistics from their footers ┐
    rows that this process reads or holds ─► new files ────────────────────────────────────────────┼─► one commit
    keys ─► the places of their rows (`search`) ───────────────────────────────────────────────────┘

Choosing the files, and the rows in them that are not the table's, does not belong here; nor does giving a file its second
name (`links`), reading its footer (`file_statistics`) or making the version (`committer`).

A commit is made in two steps: `prepare` finds rows, checks what the change presupposes, and places every file; it refuses
with `Unsupported` what Spark should write instead. `PreparedLinks.commit` makes the one commit.

Idempotent: a killed attempt leaves links that no commit names. The next attempt has the same names and finds them there. A
name is a file's own, which its writer makes unique, behind the number of the cycle: Delta takes two files of one path for
one, and a file that a range enters in two parts is two files of the table.

Cost: one pass over the bytes of linked files for their checksums, the key columns of the table's files that may have one of
the keys, and per file the read of a footer and an action in the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakeproof.errors import InvariantError, NoRoomError
from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.arrow_rows import arrow_schema
from lakeproof.lake.delta.column_types import in_spark, new_fields
from lakeproof.lake.delta.commit import Applied, CommitInfo, TableSpec, Unsupported
from lakeproof.lake.delta.committer import NewFile, version_to_follow
from lakeproof.lake.delta.file_statistics import statistics_text
from lakeproof.lake.delta.links import LandedFile, PlacedFile, Twin, mismatch, place, remove_placed, renamed
from lakeproof.lake.delta.local_rows import LocalRows, write_rows
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.delta.protocol import check_writable, metadata_of
from lakeproof.lake.delta.row_commit import RowCommit, has_vectors, spared
from lakeproof.lake.delta.search import Places, Rows, find_places
from lakeproof.lake.delta.state import TableState, read_state
from lakeproof.lake.rows.key_preconditions import check_counts, check_firsts
from lakeproof.landing.file_columns import STATISTICS_COLUMNS
from lakeproof.storage.disk import is_full
from lakeproof.storage.folder import Folder

# Letters that a path in the log has as they are: everything else would have to be encoded.
_NAME = re.compile(r"[0-9a-z][0-9A-Za-z.-]*\.parquet")
_NOTHING = Places({}, np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Link:
    """A landed file to be linked; `left_out`: the numbers of its rows that are not the table's, None if all are."""

    landed: LandedFile
    left_out: Rows | None = None


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to be created: its columns with their Spark types, in order, and its properties."""

    columns: Mapping[str, str]
    spec: TableSpec


@dataclass(frozen=True, slots=True)
class Removal:
    """The rows that go: all of them (`everything`), or those that have one of `keys`, which has each key once.

    `preconditions`: so many of the keys are of rows that must exist, as their column `FIRST` says, and of the others there
    may be none; None: not known.
    """

    key: tuple[str, ...] = ()
    keys: pa.Table | None = None
    everything: bool = False
    preconditions: int | None = None


NO_REMOVAL = Removal()


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """One commit to the table at `path`: `links` and `rows` come, what `removal` names of the rows before goes.

    `rows`: rows that this process reads or holds, `row_count` of them: they become files. For a table that exists all have
    the same columns. `required`: the
    table's columns that every linked file must have, with their names in these files. `statistics` as in a `TableSpec`.
    """

    path: str
    info: CommitInfo
    links: Sequence[Link]
    required: Mapping[str, str]
    expected_version: int
    statistics: tuple[str, ...] = ()
    removal: Removal = NO_REMOVAL
    create: NewTable | None = None
    rows: LocalRows = ()
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class PreparedLinks:
    """A commit that can be made, once: every file is in the table's folder. `before` is None for a new table.

    `linked` are the landed files among them.
    """

    request: LinkRequest
    before: TableState | None
    files: Sequence[NewFile]
    places: Places
    linked: Mapping[LandedFile, Twin]

    def commit(self) -> Applied:
        """Commit the files, and what goes."""
        request = self.request
        metadata = _metadata(request) if self.before is None else None
        everything = request.removal.everything
        return RowCommit(
            request.path, request.info, self.before, self.files, self.places.rows, everything, metadata
        ).commit()

    def discard(self) -> None:
        """Take the files out of the table's folder again, if the commit is not to be made."""
        for file in self.files:
            remove_placed(Folder.at(self.request.path), file.entry["path"])


def prepare_links(request: LinkRequest, beside: PreparedLinks | None = None) -> PreparedLinks:
    """Find the rows that go, place and check the files, and commit nothing yet.

    What `beside`, the commit of the table's other layer, has linked has been compared, and is not read again.

    Raises `Unsupported` if Spark should write the rows instead, DriftedError if the rows that the change presupposes are
    not those in the table, LakeError about a damaged file, NoRoomError about a full disk, ForeignCommitError about a commit
    that is not ours, InvariantError about one with our number. Nothing is in the table's folder then.
    """
    before = version_to_follow(request.path, request.expected_version, request.info)
    state = None if before == NO_VERSION else read_state(request.path, before)
    if state is None:
        fields = _new_table_fields(request)
    else:
        check_writable(state)
        fields = state.fields
        if any(link.left_out is not None for link in request.links) and not has_vectors(state):
            raise Unsupported("the table is written without deletion vectors")
    if request.links:
        _refuse(renamed(fields, request.required))
    # What the change presupposes is checked before any file is placed: a refused table gets none.
    places = _find(request, state)
    columns = statistics_columns(fields, request.statistics)
    placed = _place_all(request, state, places, fields, {} if beside is None else beside.linked)
    failpoint("apply.after_links")
    left_out = (link.left_out for link in request.links)
    files = [NewFile(entry_of(file, columns), next(left_out, None)) for file in placed]
    folder = Folder.at(request.path)
    linked = {link.landed: Twin(folder, file) for link, file in zip(request.links, placed, strict=False)}
    return PreparedLinks(request, state, files, places, linked)


def _find(request: LinkRequest, state: TableState | None) -> Places:
    """Return the places of the rows that go by their keys; raises DriftedError."""
    removal = request.removal
    if state is None or removal.everything or removal.keys is None:
        if removal.preconditions:
            check_counts(request.path, removal.preconditions)
        return _NOTHING
    places = find_places(state, removal.key, removal.keys)
    if removal.preconditions is not None:
        check_firsts(request.path, places.firsts(removal.keys), removal.preconditions)
    return places


def links_fit(path: str, version: int, required: Mapping[str, str]) -> bool:
    """True if files that have these columns, each under the name given, can be the table's."""
    return renamed(read_state(path, version).fields, required) is None


def _refuse(reason: str | None) -> None:
    """Raise `Unsupported` if there is a reason."""
    if reason is not None:
        raise Unsupported(reason)


def _place_all(
    request: LinkRequest,
    state: TableState | None,
    places: Places,
    fields: Sequence[Mapping[str, Any]],
    twins: Mapping[LandedFile, Twin],
) -> Sequence[PlacedFile]:
    """Return the files in the table's folder, those of `rows` last: all of them, or an error and none."""
    folder, placed = Folder.at(request.path), list[PlacedFile]()
    try:
        for link in request.links:
            file = place(link.landed, folder, linked_name(request.info, link.landed), twins.get(link.landed))
            placed.append(file)
            _refuse(mismatch(file.footer, fields, request.required))
        if state is None:
            schema = arrow_schema(fields)
            rows: Iterable[pa.Table] = (_in_schema(part, schema) for part in request.rows)
        else:
            rows = _with_spared(request.rows, state, places)
        placed.extend(_written(request, folder, rows, fields))
    except BaseException as error:
        for file in placed:
            remove_placed(folder, file.name)
        if isinstance(error, OSError) and is_full(error):
            failed = f"writing a file of it failed: {error.strerror}"
            raise NoRoomError(request.path, failed, "make room, then run it again") from error
        raise
    return placed


def _with_spared(new: Iterable[pa.Table], state: TableState, places: Places) -> Iterator[pa.Table]:
    """Give new rows, and those that are written anew beside them; then all have every column of the table."""
    if has_vectors(state) or not places.rows:
        yield from new
        return
    schema = arrow_schema(state.fields)
    yield from (_in_schema(part, schema) for part in new)
    yield from spared(state, places.rows)


def _in_schema(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of the schema: those that they lack are null."""
    named = set(part.column_names)
    columns = [part[f.name] if f.name in named else pa.nulls(part.num_rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)


def linked_name(info: CommitInfo, landed: LandedFile) -> str:
    """Return a landed file's name in a table's folder: no other file of the table ever has it."""
    name = f"cycle-{info.number:012d}-{landed.name}"
    if not _NAME.fullmatch(name):
        raise InvariantError(landed.url, "its name has letters that a path in Delta's log has not", "report this")
    return name


def _written(
    request: LinkRequest,
    folder: Folder,
    rows: Iterable[pa.Table],
    fields: Sequence[Mapping[str, Any]],
) -> Iterator[PlacedFile]:
    physical = physical_names(fields)
    named = (part.rename_columns([physical[name] for name in part.column_names]) for part in rows)
    columns = statistics_columns(fields, request.statistics)
    return write_rows(named, folder, f"rows-{request.info.number:012d}-", {*columns})


def physical_names(fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of each column in the data files."""
    return {
        f["name"]: str((f.get("metadata") or {}).get("delta.columnMapping.physicalName", f["name"])) for f in fields
    }


def _new_table_fields(request: LinkRequest) -> Sequence[Mapping[str, Any]]:
    """Return the columns that the table is to have, as Delta's schema text has them; raises `Unsupported`."""
    if request.create is None:
        raise InvariantError(request.path, "there is no Delta table, and none is to be created", "report this")
    if request.create.spec.portable and any(link.left_out is not None for link in request.links):
        raise Unsupported("it is configured with `readers: portable`, and rows of its files are not the table's")
    columns = request.create.columns
    metadata = metadata_of(new_fields(columns), request.create.spec.options(list(columns)), physical=request.required)
    return list(json.loads(metadata["schemaString"])["fields"])


def _metadata(request: LinkRequest) -> Mapping[str, Any]:
    """Return a new table's `metaData` action."""
    if request.create is None:
        raise InvariantError(request.path, "there is no Delta table, and none is to be created", "report this")
    columns = request.create.columns
    return metadata_of(new_fields(columns), request.create.spec.options(list(columns)), physical=request.required)


def statistics_columns(fields: Sequence[Mapping[str, Any]], chosen: Sequence[str]) -> Mapping[str, str]:
    """Return the columns that get statistics, by their names in files, with their Spark types: the chosen, or the first."""
    types, physical = {f["name"]: in_spark(f["type"]) for f in fields}, physical_names(fields)
    names = chosen or list(types)[:STATISTICS_COLUMNS]
    return {physical[name]: types[name] for name in names if name in types}


def entry_of(file: PlacedFile, columns: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a file's entry in the log; `columns` have statistics: name in files → Spark type."""
    return {
        "path": file.name,
        "partitionValues": {},
        "size": file.bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": statistics_text(file.footer, columns),
    }
