"""A commit by this process: landed files become data files of a table as they are, other rows become new files, rows go.

    landed files ─► a second name in the table's folder, verified ─► statistics from their footers ┐
    rows that this process reads or holds ─► new files ────────────────────────────────────────────┼─► one commit
    keys ─► the places of their rows (`search`) ───────────────────────────────────────────────────┘

Choosing the files, and the rows in them that are not the table's, does not belong here; nor does giving a file its second
name (`links`), reading its footer (`files.statistics`) or making the version (`committer`).

A commit is made in two steps: `prepare` finds rows, checks what the change presupposes, and places every file; it refuses
with `Unsupported` what Spark should write instead. `RowCommit.commit` makes the one commit, also of what Spark has written
(`apply`). A table without deletion vectors (`readers: portable`) loses rows by having the rest of their files written anew
(`spared`).

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
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakeproof.errors import InvariantError, NoRoomError
from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.arrow_rows import DeltaRows, arrow_schema, in_schema
from lakeproof.lake.delta.committer import (
    AddedFile,
    Applied,
    CommitInfo,
    LoggedOperation,
    LostRaceError,
    PendingCommit,
    version_to_follow,
)
from lakeproof.lake.delta.files.data_files import data_file
from lakeproof.lake.delta.files.links import (
    LINKED,
    LandedFile,
    LocalRows,
    PlacedFile,
    Twin,
    mismatch,
    place,
    remove_placed,
    renamed,
    write_new_files,
)
from lakeproof.lake.delta.files.statistics import statistics_text
from lakeproof.lake.delta.log.commits import NO_VERSION, Action, LogField, physical_names
from lakeproof.lake.delta.log.protocol import (
    VECTORS_ENABLED,
    TableSpec,
    check_writable,
    in_spark,
    metadata_of,
    new_fields,
)
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.delta.search import RowPlaces, find_places
from lakeproof.lake.rows.change import AllRows, Numbers, Removed, Unsupported, check_counts, check_keys
from lakeproof.landing.segments.file_columns import STATISTICS_COLUMNS
from lakeproof.storage.disk import is_full
from lakeproof.storage.folder import Folder

# Letters that a path in the log has as they are: everything else would have to be encoded.
_NAME = re.compile(r"[0-9a-z][0-9A-Za-z.-]*\.parquet")
_NOTHING = RowPlaces({}, np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Link:
    """A landed file to be linked; `left_out`: the numbers of its rows that are not the table's, None if all are."""

    landed: LandedFile
    left_out: Numbers | None = None


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to be created: its columns with their Spark types, in order, and its properties."""

    columns: Mapping[str, str]
    spec: TableSpec


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """One commit to the table at `path`: `links` and `rows` come, what is `removed` of the rows before goes.

    `rows`: rows that this process reads or holds: they become files. For a table that exists all have the same columns.
    `places`: further rows that go, by the path of their file in the log and their numbers there. `required`: the table's
    columns that every linked file must have, with their names in these files. `statistics` as in a `TableSpec`.
    """

    path: str
    info: CommitInfo
    links: Sequence[Link]
    required: Mapping[str, str]
    expected_version: int
    statistics: tuple[str, ...] = ()
    removed: Removed[pa.Table] | AllRows | None = None
    create: NewTable | None = None
    rows: LocalRows = ()
    places: Mapping[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowCommit:
    """One commit on the version `before` (None: the table's first): `files` come, `places` go, or `everything` goes.

    `places` are row numbers by the file's path in the log. `metadata`: other columns or properties, or those of a new table.
    The rows that `spared` gives for the same places are in `files`, if the table has no vectors. `linked` are the landed
    files among them.
    """

    path: str
    info: CommitInfo
    before: TableState | None
    files: Sequence[AddedFile]
    places: Mapping[str, Numbers]
    everything: bool
    metadata: Action | None
    linked: Mapping[LandedFile, Twin] = field(default_factory=dict)

    def commit(self) -> Applied:
        """Make the commit; none, if nothing changes. Raises as `version_to_follow` if somebody else's came first."""
        change = PendingCommit(self.path, self.before)
        if self.metadata is not None:
            change.set_metadata(self.metadata)
        deleted = change.remove_all() if self.everything else self._remove(change)
        inserted = change.add(self.files) - self._spared
        if change.is_empty and self.before is not None:
            return Applied(self.before.version, 0, 0)
        try:
            state = change.commit(self.info, self._operation(inserted, deleted))
        except LostRaceError:
            if self.before is not None:
                # By name: whose it is decides what becomes of the table.
                version_to_follow(self.path, self.before.version, self.info)
            raise
        return Applied(state.version, inserted, deleted)

    @contextmanager
    def or_discarded(self) -> Iterator[None]:
        """Take the files out of the table's folder again if the block raises: the commit is not to be made.

        New files have other names in each attempt: on a full disk, each would leave its own.
        """
        try:
            yield
        except BaseException:
            for file in self.files:
                remove_placed(Folder.at(self.path), file.entry["path"])
            raise

    def _remove(self, change: PendingCommit) -> int:
        if self.before is None or has_vectors(self.before):
            return change.mark(self.places)
        for path in self.places:
            change.remove(self.before.files[path])
        return sum(map(len, self.places.values()))

    @property
    def _spared(self) -> int:
        """The number of rows that are in new files because others of their files go."""
        if self.before is None or self.everything or has_vectors(self.before):
            return 0
        return sum((data_file(self.before.files[p]).live_rows or 0) - len(rows) for p, rows in self.places.items())

    def _operation(self, inserted: int, deleted: int) -> LoggedOperation:
        """Return what the table's history shows: a MERGE if rows went, else an append."""
        if self.before is None:
            name, parameters = "CREATE TABLE AS SELECT", {"isManaged": "false", "partitionBy": "[]"}
        elif self.everything:
            name, parameters = "WRITE", {"mode": "Overwrite", "partitionBy": "[]"}
        elif deleted:
            clauses = {
                "matchedPredicates": [{"actionType": "delete"}],
                "notMatchedPredicates": [{"actionType": "insert"}],
            }
            metrics = {
                "numTargetRowsInserted": inserted,
                "numTargetRowsDeleted": deleted,
                "numTargetRowsUpdated": 0,
                "numSourceRows": inserted + deleted,
            }
            return LoggedOperation("MERGE", {kind: json.dumps(clause) for kind, clause in clauses.items()}, metrics)
        else:
            name, parameters = "WRITE", {"mode": "Append", "partitionBy": "[]"}
        size = sum(int(file.entry["size"]) for file in self.files)
        return LoggedOperation(
            name, parameters, {"numFiles": len(self.files), "numOutputRows": inserted, "numOutputBytes": size}
        )


def prepare_links(request: LinkRequest, beside: RowCommit | None = None) -> RowCommit:
    """Find the rows that go, place and check the files, and commit nothing yet.

    What `beside`, the commit of the table's other layer, has linked has been compared, and is not read again.

    Raises `Unsupported` if Spark should write the rows instead, DriftedError if the rows that the change presupposes are
    not those in the table, LakeError about a damaged file, NoRoomError about a full disk, ForeignCommitError about a commit
    that is not ours, TransientError about one with our number. Nothing is in the table's folder then (`remove_placed`).
    """
    before = version_to_follow(request.path, request.expected_version, request.info)
    state = metadata = None
    if before == NO_VERSION:
        metadata = _metadata(request)
        fields = json.loads(metadata["schemaString"])["fields"]
    else:
        state = read_state(request.path, before)
        check_writable(state)
        fields = state.fields
        if any(link.left_out is not None for link in request.links) and not has_vectors(state):
            raise Unsupported("the table is written without deletion vectors")
    if request.links:
        _refuse(renamed(fields, request.required))
    # What the change presupposes is checked before any file is placed: a refused table gets none.
    places = _find(request, state)
    linked, new = _place_all(request, state, places, fields, {} if beside is None else beside.linked)
    failpoint("apply.after_links")
    columns, folder = statistics_columns(fields, request.statistics), Folder.at(request.path)
    pairs = list(zip(request.links, linked, strict=True))
    files = [*(AddedFile(entry_of(file, columns), link.left_out) for link, file in pairs), *new]
    twins = {link.landed: Twin(folder, file) for link, file in pairs}
    everything = isinstance(request.removed, AllRows)
    return RowCommit(request.path, request.info, state, files, places.rows, everything, metadata, twins)


def _find(request: LinkRequest, state: TableState | None) -> RowPlaces:
    """Return the places of the rows that go by their keys; raises DriftedError."""
    places = _NOTHING
    match request.removed:
        case AllRows(presupposed):
            check_counts(request.path, presupposed)
        case Removed() as removed:
            places = _NOTHING if state is None else find_places(state, removed.key, removed.rows)
            check_keys(request.path, removed, places.keys)
    return places.with_rows(request.places)


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
    places: RowPlaces,
    fields: Sequence[LogField],
    twins: Mapping[LandedFile, Twin],
) -> tuple[list[PlacedFile], list[AddedFile]]:
    """Return the linked files in the table's folder, and those of `rows`: all of them, or an error and none."""
    folder, linked, new = Folder.at(request.path), list[PlacedFile](), list[AddedFile]()
    try:
        for link in request.links:
            file = place(link.landed, folder, linked_name(request.info, link.landed), twins.get(link.landed))
            linked.append(file)
            _refuse(mismatch(file.footer, fields, request.required))
        if state is None:
            schema = arrow_schema(fields)
            rows: Iterable[pa.Table] = (in_schema(part, schema) for part in request.rows)
        else:
            rows = _with_spared(request.rows, state, places)
        new.extend(write_rows(rows, folder, request.info.number, fields, request.statistics))
    except BaseException as error:
        for name in [*(file.name for file in linked), *(file.entry["path"] for file in new)]:
            remove_placed(folder, name)
        if isinstance(error, OSError) and is_full(error):
            failed = f"writing a file of it failed: {error.strerror}"
            raise NoRoomError(request.path, failed, "make room, then run it again") from error
        raise
    return linked, new


def _with_spared(new: Iterable[pa.Table], state: TableState, places: RowPlaces) -> Iterator[pa.Table]:
    """Give new rows, and those that are written anew beside them; then all have every column of the table."""
    if has_vectors(state) or not places.rows:
        yield from new
        return
    schema = arrow_schema(state.fields)
    yield from (in_schema(part, schema) for part in new)
    yield from spared(state, places.rows)


def linked_name(info: CommitInfo, landed: LandedFile) -> str:
    """Return a landed file's name in a table's folder: no other file of the table ever has it."""
    name = f"{LINKED}{info.number:012d}-{landed.name}"
    if not _NAME.fullmatch(name):
        raise InvariantError(landed.url, "its name has letters that a path in Delta's log has not", "report this")
    return name


def write_rows(
    rows: Iterable[pa.Table], folder: Folder, number: int, fields: Sequence[LogField], statistics: Sequence[str]
) -> Iterator[AddedFile]:
    """Write rows of a table with these fields into new files, and give each; `number` is that of the cycle.

    `statistics` as in a `TableSpec`.
    """
    physical, columns = physical_names(fields), statistics_columns(fields, statistics)
    named = (part.rename_columns([physical[name] for name in part.column_names]) for part in rows)
    for file in write_new_files(named, folder, f"rows-{number:012d}-", {*columns}):
        yield AddedFile(entry_of(file, columns))


def _metadata(request: LinkRequest) -> Action:
    """Return the `metaData` of the table that is to be; raises `Unsupported`."""
    if request.create is None:
        raise InvariantError(request.path, "there is no Delta table, and none is to be created", "report this")
    columns, spec = request.create.columns, request.create.spec
    if spec.portable and any(link.left_out is not None for link in request.links):
        raise Unsupported("it is configured with `readers: portable`, and rows of its files are not the table's")
    return metadata_of(new_fields(columns), spec.options(list(columns)), physical=request.required)


def statistics_columns(fields: Sequence[LogField], chosen: Sequence[str]) -> Mapping[str, str]:
    """Return the columns that get statistics, by their names in files, with their Spark types: the chosen, or the first."""
    types, physical = {f["name"]: in_spark(f["type"]) for f in fields}, physical_names(fields)
    names = chosen or list(types)[:STATISTICS_COLUMNS]
    return {physical[name]: types[name] for name in names if name in types}


def entry_of(file: PlacedFile, columns: Mapping[str, str]) -> Action:
    """Return a file's entry in the log; `columns` have statistics: name in files → Spark type."""
    return {
        "path": file.name,
        "partitionValues": {},
        "size": file.bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": statistics_text(file.footer, columns),
    }


def has_vectors(state: TableState) -> bool:
    """True if rows of the table's files may be marked as deleted."""
    return state.has_property(VECTORS_ENABLED, "true")


def spared(state: TableState, places: Mapping[str, Numbers]) -> Iterator[pa.Table]:
    """Give the rows that stay of files that lose others, if the table has no vectors: they are to be written anew.

    They have every column of the table, dropped ones too.
    """
    if has_vectors(state) or not places:
        return
    rows = DeltaRows.of_state(state)
    for path, numbers in places.items():
        for batch, _ in rows.numbered(data_file(state.files[path]), rows.schema.names, gone=numbers):
            yield pa.Table.from_batches([batch])
