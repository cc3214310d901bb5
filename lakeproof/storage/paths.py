"""The places of everything in a lake: every key is formed here and nowhere else.

URLs do not belong here (the store forms them), nor do the contents: `landing/FORMAT.md` and `lake/FORMAT.md` describe them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from lakeproof.errors import ConfigError
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Layer, TableName

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
VIEWS = "views"
# Folders beside the views' tables, so no view has these names.
CUTS = "cuts"
DEFINITIONS = "definitions"
PREVIEWS = "previews"
BESIDE_VIEWS = (CUTS, DEFINITIONS, PREVIEWS)
GROUPS = "groups"
# Folders of a lake that are no source's.
RESERVED = frozenset({VIEWS, GROUPS})


@dataclass(frozen=True, slots=True)
class LakePaths:
    """The keys of one source in a lake; those of its views and runs belong to no source and need no instance.

    Raises ConfigError for a source name that could not be a folder beside `views` and `groups`.
    """

    source: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.source) or self.source in RESERVED:
            raise ConfigError(
                f"source {self.source[:80]!r}",
                f"its name becomes a folder of the lake beside {VIEWS!r} and {GROUPS!r}",
                "use letters, digits, - and _ (not first -), and another name than these",
            )

    # The landing ---------------------------------------------------------------------------------

    @property
    def landings(self) -> str:
        """The folder of all incarnations."""
        return f"{self.source}/landing"

    def landing(self, incarnation: Incarnation) -> str:
        """The folder of one incarnation's chain; `files[].path` of a manifest is below it."""
        return f"{self.landings}/{incarnation:06d}"

    def incarnation_record(self, incarnation: Incarnation) -> str:
        """The record of an incarnation that is about to begin."""
        return f"{self.landing(incarnation)}/incarnation.json"

    def timelines(self, incarnation: Incarnation) -> str:
        """The folder of the timelines that the landing has followed."""
        return f"{self.landing(incarnation)}/timelines"

    def stuck(self, incarnation: Incarnation, position: Lsn) -> str:
        """The record that the stream is stuck at a position."""
        return f"{self.landing(incarnation)}/stuck/{position.value:016X}.json"

    def manifests(self, incarnation: Incarnation) -> str:
        """The folder of the manifests."""
        return f"{self.landing(incarnation)}/manifests"

    def manifest(self, incarnation: Incarnation, number: int) -> str:
        """One manifest."""
        return f"{self.manifests(incarnation)}/{number:020d}.json"

    def chain_starts(self, incarnation: Incarnation) -> str:
        """The folder of the documents that name the chain's present start."""
        return f"{self.landing(incarnation)}/start"

    def chain_start(self, incarnation: Incarnation, number: int) -> str:
        """The document that starts the chain at manifest `number`."""
        return f"{self.chain_starts(incarnation)}/{number:020d}.json"

    def data(self, incarnation: Incarnation) -> str:
        """The folder of the segments' data files."""
        return f"{self.landing(incarnation)}/data"

    def catalogs(self, incarnation: Incarnation) -> str:
        """The folder of the catalog's fingerprints."""
        return f"{self.landing(incarnation)}/catalog"

    # Snapshots and cycles ------------------------------------------------------------------------

    @property
    def source_document(self) -> str:
        """`source.json`."""
        return f"{self.source}/source.json"

    @property
    def all_snapshots(self) -> str:
        """The folder of the snapshots of all incarnations."""
        return f"{self.source}/snapshots"

    def snapshots(self, incarnation: Incarnation) -> str:
        """The folder of one incarnation's snapshots."""
        return f"{self.all_snapshots}/{incarnation:06d}"

    def snapshot(self, incarnation: Incarnation, consistent_point: Lsn) -> str:
        """The folder of the snapshot at a consistent point."""
        return f"{self.snapshots(incarnation)}/{int(consistent_point):016x}"

    def settled_snapshots(self, incarnation: Incarnation) -> str:
        """The folder of the marks of one incarnation's snapshots that are settled, each with the name of the snapshot's."""
        return f"{self.all_snapshots}/settled/{incarnation:06d}"

    @property
    def snapshot_lock(self) -> str:
        """The file that the process copying a snapshot of this source keeps locked."""
        return f"{self.all_snapshots}/run.lock"

    @property
    def snapshot_progress(self) -> str:
        """The progress of that copy: for people only, nothing relies on it."""
        return f"{self.all_snapshots}/progress.json"

    @property
    def keyed_copies(self) -> str:
        """The folder of the copies of single keys, which a repair makes and its cycle enters."""
        return f"{self.source}/repairs"

    def keyed_copy(self, incarnation: Incarnation, consistent_point: Lsn, writer: str) -> str:
        """The folder of one of them; several may be made at the same consistent point."""
        return f"{self.keyed_copies}/{incarnation:06d}-{int(consistent_point):016x}-{writer}"

    @property
    def intents(self) -> str:
        """The folder of the intents."""
        return f"{self.source}/cycles/intents"

    def intent(self, number: CycleNumber) -> str:
        """One cycle's intent."""
        return f"{self.intents}/{number:012d}.json"

    @property
    def cuts(self) -> str:
        """The folder of the cuts."""
        return f"{self.source}/cycles/cuts"

    def cut(self, number: CycleNumber) -> str:
        """One cycle's cut."""
        return f"{self.cuts}/{number:012d}.json"

    @property
    def cut_bases(self) -> str:
        """The folder of what many cuts have in common."""
        return f"{self.source}/cycles/bases"

    def cut_base(self, number: CycleNumber) -> str:
        """All tables of cut `number`, for later cuts to refer to."""
        return f"{self.cut_bases}/{number:012d}.json"

    def table_schema(self, schema_id: str) -> str:
        """A schema version that tables have in cuts."""
        return f"{self.source}/cycles/table_schemas/{schema_id}.json"

    @property
    def attempts(self) -> str:
        """The folder of the attempts to write tables in an unfinished cycle."""
        return f"{self.source}/cycles/attempts"

    def attempt(self, number: CycleNumber, table: str, attempt: int) -> str:
        """One attempt in a cycle; `table` is a digest of the table's key, which may be too long for a file name."""
        return f"{self.attempts}/{number:012d}-{table}-{attempt}.json"

    @property
    def leases(self) -> str:
        """The folder of the leases."""
        return f"{self.source}/cycles/lease"

    def lease(self, epoch: int) -> str:
        """One lease."""
        return f"{self.leases}/{epoch:012d}.json"

    @property
    def proof_lock(self) -> str:
        """The lock that a process keeps while it proves or maintains the source."""
        return f"{self.source}/cycles/proof.lock"

    @property
    def changes_lock(self) -> str:
        """The lock that a proof of changes keeps beside it: whoever wants `proof_lock` waits for that proof."""
        return f"{self.source}/cycles/changes.lock"

    @property
    def lease_lock(self) -> str:
        """The file that a local lease's holder keeps locked."""
        return f"{self.source}/cycles/lease.lock"

    @property
    def turn_lock(self) -> str:
        """The file that a process keeps locked while it waits for the lease of one that follows the landing."""
        return f"{self.source}/cycles/turn.lock"

    @property
    def follow_lock(self) -> str:
        """The file that processes keep locked, together, while they follow the landing."""
        return f"{self.source}/cycles/follow.lock"

    @property
    def proof_record(self) -> str:
        """The result of the last proof of each table."""
        return f"{self.source}/proved.json"

    @property
    def ages(self) -> str:
        """The marks by which the age of rows is known."""
        return f"{self.source}/cycles/ages.json"

    @property
    def paused(self) -> str:
        """The tables that a person has paused."""
        return f"{self.source}/paused.json"

    @property
    def paused_lock(self) -> str:
        """The file that a process keeps locked while it changes the record of paused tables."""
        return f"{self.source}/paused.lock"

    @property
    def descriptions(self) -> str:
        """Comments and types of the source's tables: for people only, nothing relies on it."""
        return f"{self.source}/described.json"

    def description_versions(self, table: TableName) -> str:
        """The folder of the versions of a table's description."""
        return f"{self.source}/described/{table.key}"

    def description_version(self, table: TableName, number: int) -> str:
        """A version of a table's description, from 1 on."""
        return f"{self.description_versions(table)}/{number:06d}.json"

    # Tables and views ----------------------------------------------------------------------------

    def history(self, table: TableName) -> str:
        """The Delta table of a table's changes."""
        return f"{self.source}/history/{table.key}"

    def archive(self, table: TableName, delta_id: str) -> str:
        """The folder, in the archive, of a table's history, the Delta table `delta_id`: a lake begun again has another."""
        return f"{self.history(table)}/{delta_id}"

    def archived(self, table: TableName, delta_id: str, number: CycleNumber) -> str:
        """The folder of the rows that left it in a cycle."""
        return f"{self.archive(table, delta_id)}/{number:012d}"

    def current(self, table: TableName) -> str:
        """The Delta table of a table's rows."""
        return f"{self.source}/current/{table.key}"

    def layer(self, table: TableName, layer: Layer) -> str:
        """One of the two."""
        return self.history(table) if layer == "history" else self.current(table)

    @property
    def all_daily(self) -> str:
        """The folder of the tables of days."""
        return f"{self.source}/daily"

    def daily(self, table: TableName) -> str:
        """The Delta table of a table's rows at the end of each day."""
        return f"{self.all_daily}/{table.key}"

    def days(self, table: TableName) -> str:
        """The days that it has."""
        return f"{self.source}/days/{table.key}.json"

    @property
    def daily_lock(self) -> str:
        """The lock that a process keeps while it makes days, or removes files of theirs."""
        return f"{self.source}/days/run.lock"

    @staticmethod
    def layer_of(path: str) -> str:
        """Return `history` or `current`, of the place of one of a table's two Delta tables: its key has two parts."""
        return PurePosixPath(path).parts[-3]

    @property
    def schema_history(self) -> str:
        """The Delta table of the changes of tables' schemas."""
        return f"{self.source}/schema_history"

    def schema_versions(self, table: TableName) -> str:
        """The folder of a table's schema versions."""
        return f"{self.source}/schemas/{table.key}"

    def schema_version(self, table: TableName, number: CycleNumber) -> str:
        """A table's schema version from a cycle on."""
        return f"{self.schema_versions(table)}/{number:012d}.json"

    @staticmethod
    def view(name: str) -> str:
        """A view's Delta table; raises ConfigError for a name that could not be a folder beside the views' documents."""
        if not _NAME.fullmatch(name) or name in BESIDE_VIEWS:
            remedy = f"use letters, digits, - and _, and none of {', '.join(BESIDE_VIEWS)}"
            raise ConfigError(f"view {name[:80]!r}", "its name becomes a folder", remedy)
        return f"{VIEWS}/{name}"

    @staticmethod
    def view_cuts() -> str:
        """The folder of the views' cuts."""
        return f"{VIEWS}/{CUTS}"

    @staticmethod
    def view_cut(number: CycleNumber) -> str:
        """One view's cut."""
        return f"{VIEWS}/{CUTS}/{number:012d}.json"

    @staticmethod
    def view_definitions(view: str) -> str:
        """The folder of the definitions that a view has had."""
        return f"{VIEWS}/{DEFINITIONS}/{view}"

    @staticmethod
    def view_definition(view: str, sha256: str) -> str:
        """One definition of a view, by its hash."""
        return f"{LakePaths.view_definitions(view)}/{sha256}.json"

    @staticmethod
    def all_view_previews() -> str:
        """The folder of the previews of all views."""
        return f"{VIEWS}/{PREVIEWS}"

    @staticmethod
    def view_previews(view: str) -> str:
        """The folder of a view's previews."""
        return f"{VIEWS}/{PREVIEWS}/{view}"

    @staticmethod
    def view_preview(view: str, name: str) -> str:
        """The folder of one preview."""
        return f"{LakePaths.view_previews(view)}/{name}"

    @staticmethod
    def view_preview_document(view: str, name: str) -> str:
        """What a preview says; it is there when the staged rows are."""
        return f"{LakePaths.view_preview(view, name)}/preview.json"

    @staticmethod
    def refresh_lock() -> str:
        """The lock that a process keeps while it refreshes or maintains views."""
        return f"{VIEWS}/refresh.lock"

    @staticmethod
    def group_cuts(group: str) -> str:
        """The folder of a group's cuts; raises ConfigError for a name that could not be a folder."""
        if not _NAME.fullmatch(group):
            raise ConfigError(f"group {group[:80]!r}", "its name becomes a folder", "use letters, digits, - and _")
        return f"{GROUPS}/{group}/{CUTS}"

    @staticmethod
    def group_cut(group: str, number: int) -> str:
        """One cut of a group."""
        return f"{LakePaths.group_cuts(group)}/{number:012d}.json"

    @staticmethod
    def run_lock(job: str) -> str:
        """The lock that the runs of a Dagster job hold together; no source has a name that begins with a dot."""
        return f".runs/{job}.lock"

    @staticmethod
    def executors_trial(name: str) -> str:
        """A folder for files by which driver and executors see that they have the same lake; beside the runs' locks."""
        return f".runs/executors/{name}"

    @staticmethod
    def messages(run: str) -> str:
        """The folder of the messages that a command sends to a Dagster run, while both live."""
        return f".runs/messages/{run}"

    @staticmethod
    def message_chunk(folder: str, number: int) -> str:
        """One chunk of messages."""
        return f"{folder}/{number:09d}.jsonl"

    @staticmethod
    def message_stop(folder: str) -> str:
        """The document by which the run asks the command to end."""
        return f"{folder}/stop"
