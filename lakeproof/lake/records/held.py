"""Tables that stand still: the cause and the way out as values, and the one place that makes sentences of them.

Nothing else may write these sentences, and no code reads them: a decision about a held table asks
`Held.cause`, `Held.way_out` and `Held.differences`. Documents of a cut have the values; `describe_held` is for people.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from lakeproof.catalog.differences import Difference
from lakeproof.config.table_names import table_text
from lakeproof.errors import BEGIN_AGAIN, TableError, manual
from lakeproof.field_types import LsnField
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.document import Part


class HeldCause(Enum):
    """The reasons for holding a table; a comment names the details that the sentence needs."""

    CATALOG = "catalog"  # `lower_lsn`, `upper_lsn`, `differences`; maybe `renamed_to` (a key), `suspect_from`
    SCHEMA_CHANGE = "schema change"  # `change`, `why_not_in_place`
    SNAPSHOT_SCHEMA = "snapshot of another schema"  # `change`, `point`
    SNAPSHOT_OUTDATED = "snapshot outdated"  # `change`
    SNAPSHOT_NOT_FOLLOWED = "snapshot not followed"  # `point`, `removed_to`
    NEXT_INCARNATION = "next incarnation"  # `incarnation`, `previous`
    FOREIGN_COMMIT = "foreign commit"  # `layer`, `problem`
    FOREIGN_COMMIT_STAYS = "foreign commit stays"  # `problem`
    LOG_DAMAGED = "log damaged"  # `layer`, `path`, `problem`
    TABLE_NOT_NAMED = "table that no cut names"  # `path`
    HISTORY_UNREADABLE = "history unreadable"  # `file`
    NOT_WRITTEN = "not written"  # `attempts`, `problem`; `silent` if some ended with their process
    ROW_TOO_LARGE = "row too large"  # `row_mib`, `driver_mib`, `driver_gib_needed`
    ROWS_DIFFER = "rows differ"  # `absent` and `presupposed`, `unexpected`: counts
    DATA_REFUSED = "data refused"  # `problem`
    KEY_NOT_UNIQUE = "key not unique"
    NEW_KEY_NOT_UNIQUE = "new key not unique"
    SCHEMA_UNKNOWN = "schema unknown"  # `schema_id`
    COLUMNS_REFUSED = "columns refused"  # `problem`
    NAMES_NOT_PORTABLE = "names not portable"  # `names`
    PAUSED = "paused"  # `since`


class WayOut(Enum):
    """The ways to bring a held table back."""

    SNAPSHOT = "snapshot"
    SNAPSHOT_IF_PUBLISHED = "snapshot if published"
    PUBLISH_THEN_SNAPSHOT = "publish, then snapshot"
    SNAPSHOT_OF_ROOT = "snapshot of the root"  # `renamed_to`
    SAME_IDENTITY_THEN_SNAPSHOT = "the partitions' identity, then snapshot"
    CORRECT_TEXT_THEN_SNAPSHOT = "correct the text, then snapshot"
    READ_AS_TEXT_THEN_SNAPSHOT = "read as text, then snapshot"
    MORE_MEMORY_THEN_SNAPSHOT = "more memory, then snapshot"  # `driver_gib_needed`
    MOVE_TABLE_THEN_SNAPSHOT = "move the table away, then snapshot"
    OTHER_KEY_THEN_SNAPSHOT = "another key, then snapshot"
    OTHER_NAMES_THEN_SNAPSHOT = "other names, then snapshot"
    RESTORE_LOG_OR_SNAPSHOT = "restore the log, or snapshot"  # `path`
    RESTORE_FILE_OR_SNAPSHOT = "restore the file, or snapshot"
    BY_HAND = "by hand"
    BEGIN_AGAIN = "begin the lake again"
    RESUME = "resume"
    NEXT_RUN = "next run"  # of maintenance alone: nothing is held for it


@dataclass(frozen=True, slots=True)
class Held(Part):
    """A table that stands still: its position, the cause and the way out; `detail` has what the sentences need.

    `differences`: what the source's catalog has other than before, for the cause `CATALOG`. `history_lost`: its history
    could not be read. That stays so, whatever else holds the table later, until a copy enters.
    """

    at_lsn: LsnField
    cause: HeldCause
    way_out: WayOut
    detail: Mapping[str, str] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    history_lost: bool = False

    @property
    def reason(self) -> str:
        """A sentence for people."""
        reason = _reason(self.cause, {**self.detail, "at_lsn": str(self.at_lsn)}, self.differences)
        also = self.history_lost and self.cause is not HeldCause.HISTORY_UNREADABLE
        return f"{reason}; its history can't be read either" if also else reason

    def has_same_reason(self, other: Held) -> bool:
        """True if nothing but the position and the way out differs."""
        mine = (self.cause, self.detail, self.differences, self.history_lost)
        return mine == (other.cause, other.detail, other.differences, other.history_lost)

    def after(self, before: Held | None) -> Held:
        """Return the same for a table that was held like `before`: a history that was lost then is lost now."""
        if self.history_lost or before is None or not before.history_lost:
            return self
        return replace(self, history_lost=True)


class TableHeldError(TableError):
    """A cycle can't write a table, which is to be held for it; the other tables go on."""

    def __init__(self, thing: str, cause: HeldCause, way_out: WayOut, detail: Mapping[str, str] | None = None) -> None:
        self.cause, self.way_out, self.detail = cause, way_out, dict(detail or {})
        reason, remedy = _reason(cause, self.detail), _remedy(way_out, self.detail, "SOURCE", "TABLE")
        super().__init__(thing, reason, remedy)

    def held(self, at_lsn: Lsn) -> Held:
        """Return how a table is held that stands at `at_lsn`."""
        lost = self.cause is HeldCause.HISTORY_UNREADABLE
        return Held(at_lsn, self.cause, self.way_out, self.detail, history_lost=lost)


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A held table as a person sees it: the values, and the sentences that `describe_held` made of them."""

    at_lsn: Lsn
    cause: HeldCause
    way_out: WayOut
    reason: str
    remedy: str
    history_lost: bool

    def __str__(self) -> str:
        return f"held since {self.at_lsn}: {self.reason}; {self.remedy}"


def describe_held(held: Held, source: str, table: TableName) -> HeldReport:
    """Make the sentences about a held table; the remedy can be typed as it stands."""
    remedy = _remedy(held.way_out, held.detail, source, shlex.quote(table_text(table)))
    return HeldReport(held.at_lsn, held.cause, held.way_out, held.reason, remedy, held.history_lost)


def describe_all(held: Mapping[TableName, Held], source: str, remedy: str | None = None) -> dict[TableName, HeldReport]:
    """Make the sentences about each held table of a source; `remedy` is the source's own, if it comes before theirs."""
    reports = {table: describe_held(why, source, table) for table, why in held.items()}
    return reports if remedy is None else {t: replace(report, remedy=remedy) for t, report in reports.items()}


def snapshot_command(source: str, table: TableName) -> str:
    """Return what to type for a new snapshot of a table."""
    return _snapshot(source, shlex.quote(table_text(table)))


def _snapshot(source: str, table: str) -> str:
    return f"run `lakeproof bootstrap {source} --tables {table}`, then compact"


_DIFFERENCES = {
    Difference.COLUMN_TYPE: "a column has another type",
    Difference.REWRITTEN: "its rows were rewritten by an ALTER TABLE",
    Difference.PARTITION_ATTACHED: "a partition was attached with the rows it had",
    Difference.PARTITION_DETACHED: "a partition was detached or dropped with its rows",
    Difference.PARTITION_PASSED: "it had another partition for a while, or was one, and rows went by the name of the whole",
    Difference.PARTITION_FILE: "a partition was truncated, or rewritten by VACUUM FULL or CLUSTER, which looks the same",
    Difference.PARTITION_IDENTITY: "a partition's replica identity does not have the table's columns",
    Difference.LABEL_CHANGED: "an enum's label was renamed",
    Difference.COMPOSITE: "a composite type was altered",
    Difference.FILTER: "the publication's row filter for it has changed",
    Difference.COLUMN_LIST: "the publication's column list for it has changed",
    Difference.COLUMN_SENT: "a column of it is sent that was there before and was not",
    Difference.OPERATIONS: "the publication sends other operations",
    Difference.PUBLISHED_AGAIN: "it was taken out of the publication and put back",
    Difference.PUBLICATION_ALTERED: "the publication was altered and is as before again",
    Difference.ENTERED: "it came into the publication",
    Difference.UNREAD: "its publication was not read until then",
    Difference.LEFT: "it is not published any more",
    Difference.DROPPED: "it was dropped",
    Difference.BECAME_PARTITION: "its rows go, as a partition's,",
    Difference.RENAMED: "it was renamed",
}
_REASONS: Mapping[HeldCause, str] = {
    HeldCause.SCHEMA_CHANGE: "{change} ({why_not_in_place})",
    HeldCause.SNAPSHOT_SCHEMA: "{change}; the snapshot at {point} is to enter",
    HeldCause.SNAPSHOT_OUTDATED: "after its snapshot {change}",
    HeldCause.SNAPSHOT_NOT_FOLLOWED: (
        "what followed its snapshot at {point} was removed from the landing, up to {removed_to}"
    ),
    HeldCause.NEXT_INCARNATION: (
        "incarnation {incarnation} began after a gap, and no snapshot of this table has entered since"
        " (its position is one of incarnation {previous})"
    ),
    HeldCause.FOREIGN_COMMIT: "its {layer} table: {problem}",
    HeldCause.FOREIGN_COMMIT_STAYS: "a commit of someone else can't be taken back: {problem}",
    HeldCause.LOG_DAMAGED: "its {layer} table: {problem}",
    HeldCause.TABLE_NOT_NAMED: "in {path} there is a table that no cut names",
    HeldCause.HISTORY_UNREADABLE: "its history can't be read: {file}",
    HeldCause.ROW_TOO_LARGE: "it has a row of up to {row_mib} MiB, more than goes through a heap of {driver_mib} MiB",
    HeldCause.DATA_REFUSED: "{problem}",
    HeldCause.KEY_NOT_UNIQUE: "the configured key is not unique",
    HeldCause.NEW_KEY_NOT_UNIQUE: (
        "its new key does not tell the lake's rows apart: one of them has NULL in it, or two have the same"
    ),
    HeldCause.SCHEMA_UNKNOWN: ("no kept manifest names the schema {schema_id} of some of its rows, and no cut had it"),
    HeldCause.COLUMNS_REFUSED: "Delta refuses the change of its columns: {problem}",
    HeldCause.PAUSED: "it is paused since {since}",
    HeldCause.NAMES_NOT_PORTABLE: (
        "it is configured with `readers: portable`, and without column mapping a file can't have the names {names}"
    ),
}
_MANUAL = manual("What changes of the source's tables do to the lake", "The way out")
_BY_HAND = f"see {manual('Running it', 'Someone else has committed to a table of the lake')}"
_REMEDIES: Mapping[WayOut, str] = {
    WayOut.SNAPSHOT: "{snapshot}",
    WayOut.SNAPSHOT_IF_PUBLISHED: "if it is still published, {snapshot}",
    WayOut.PUBLISH_THEN_SNAPSHOT: (
        "what the lake has of it is kept; if it is to be followed again, publish it under this name and {snapshot}"
        f" ({_MANUAL})"
    ),
    WayOut.SNAPSHOT_OF_ROOT: (
        "what the lake has of it is kept, and its rows come under {root}: {snapshot_of_root}, and take it out of `tables`"
        " if they name it; to follow it by itself again, publish it and {snapshot}"
    ),
    WayOut.SAME_IDENTITY_THEN_SNAPSHOT: (
        "give each partition a replica identity that has the table's columns (`lakeproof check` names those that have"
        " none), then {snapshot}"
    ),
    WayOut.CORRECT_TEXT_THEN_SNAPSHOT: "correct the text in the source, then {snapshot}",
    WayOut.READ_AS_TEXT_THEN_SNAPSHOT: (
        "name the column under as_text of the table in the configuration, then {snapshot}"
    ),
    WayOut.MORE_MEMORY_THEN_SNAPSHOT: (
        "set spark.driver_memory, and on a cluster spark.executor.memory, to {driver_gib_needed}g or more, then {snapshot}"
    ),
    WayOut.MOVE_TABLE_THEN_SNAPSHOT: "move it away and {snapshot}",
    WayOut.OTHER_KEY_THEN_SNAPSHOT: "make it unique in the source, or configure another key, or none; then {snapshot}",
    WayOut.OTHER_NAMES_THEN_SNAPSHOT: (
        "rename the columns in the source, or take `readers` out of the table's configuration, then {snapshot}"
    ),
    WayOut.RESTORE_LOG_OR_SNAPSHOT: "restore {path} from a backup, or begin its history again: {snapshot}",
    WayOut.RESTORE_FILE_OR_SNAPSHOT: (
        "restore that file from a backup, or its history begins again with the next copy; then {snapshot}"
    ),
    WayOut.BY_HAND: _BY_HAND,
    WayOut.RESUME: "when it is to be followed again, {resume}",
    WayOut.BEGIN_AGAIN: BEGIN_AGAIN,
    WayOut.NEXT_RUN: "the next run tries it again",
}


def _reason(cause: HeldCause, detail: Mapping[str, str], differences: tuple[Difference, ...] = ()) -> str:
    details = _Detail(detail)
    match cause:
        case HeldCause.CATALOG:
            return _catalog_reason(details, differences)
        case HeldCause.NOT_WRITTEN:
            silent = (
                f"; {detail['silent']} of them ended with the process, without a word" if "silent" in detail else ""
            )
            return f"it could not be written, {details['attempts']} times: {details['problem']}{silent}"
        case HeldCause.ROWS_DIFFER:
            parts = []
            if "absent" in detail:
                parts.append(f"{detail['absent']} of {details['presupposed']} rows that they are about are not there")
            if "unexpected" in detail:
                parts.append(f"{detail['unexpected']} rows are there that should not be, or twice")
            return f"the lake is not what the changes follow on: {'; '.join(parts)}"
        case _:
            return _REASONS[cause].format_map(details)


_UNDER_ITS_NEW_NAME = (
    "what the lake has of it is kept; to follow it under its new name, have {root} in the configuration's `tables`, and"
    f" {{snapshot_of_root}}; to follow another table under this name, publish that, and {{snapshot}} ({_MANUAL})"
)


def _catalog_reason(detail: Mapping[str, str], differences: tuple[Difference, ...]) -> str:
    renamed = f" to {TableName.from_key(detail['renamed_to'])}" if "renamed_to" in detail else ""
    changes = "; ".join(_DIFFERENCES[d] for d in differences if d in _DIFFERENCES)
    reason = f"{changes}{renamed} (noticed at {detail['upper_lsn']}, since {detail['lower_lsn']} at the earliest)"
    if "suspect_from" not in detail:
        return reason
    return (
        f"{reason}; it stands at {detail['at_lsn']}, and what it has from {detail['suspect_from']} on can't be trusted"
    )


def _remedy(way_out: WayOut, detail: Mapping[str, str], source: str, table: str) -> str:
    details = _Detail(detail)
    details["snapshot"] = _snapshot(source, table)
    details["resume"] = f"run `lakeproof resume {source} --tables {table}`"
    if "renamed_to" in detail:
        root = TableName.from_key(detail["renamed_to"])
        details |= {"root": str(root), "snapshot_of_root": snapshot_command(source, root)}
        if way_out is WayOut.PUBLISH_THEN_SNAPSHOT:
            return _UNDER_ITS_NEW_NAME.format_map(details)
    return _REMEDIES[way_out].format_map(details)


class _Detail(dict[str, str]):
    """The details of a document: one that is missing must not keep a person from reading the rest."""

    def __missing__(self, name: str) -> str:
        return "?"
