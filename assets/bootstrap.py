"""Snapshots: the first copy of a source's tables, and every later copy of selected tables.

Copying does not belong here (`lakeproof.commands.bootstrap`). The next compaction brings a snapshot into the lake.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.catalog import Catalog
from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, table_key
from assets.support.step import StepRun, asset_step
from lakeproof.config.model import SourceConfig
from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from resources import Settings

if TYPE_CHECKING:
    from lakeproof.snapshot.run import SnapshotReport
    from lakeproof.state.due_copies import Copied


# Of thousands of tables a line names some.
_NAMES_MAX = 10


class SnapshotOptions(dg.Config):
    """Options for launching a snapshot; kept in the run, and the reason in each table's metadata."""

    reason: str = ""
    copy_again: bool = Field(
        default=False, description="also copy the selected tables that are in the lake already and not held"
    )


def snapshot_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the snapshots of one source: all tables that a run selects are copied under one snapshot, at one LSN."""
    tables = {table_key(Layer.SNAPSHOT, source.name, table): table for table in source.tables}

    @asset_step(
        f"snapshot_{source.name}",
        [
            catalog.spec(
                key,
                f"Every row of {table} at one LSN, copied in chunks. Materialize any number of tables together: they share "
                "one snapshot. A table that is in the lake already is copied again only with `copy_again: true`, or if it "
                "is held. A later snapshot corrects history and current if they differ from it.",
                {"postgres", "parquet"},
                [table_key(Layer.POSTGRES, source.name, table)],
            )
            for key, table in tables.items()
        ],
        # In a run of everything the first copy comes first: it makes the slot and the landing that the drain needs.
        StepRun(can_subset=True, tags={"dagster/priority": "10"}),
        after=(),
    )
    def snapshot(
        context: dg.AssetExecutionContext, config: SnapshotOptions, settings: Settings
    ) -> Iterator[dg.MaterializeResult[None]]:
        from lakeproof.commands.bootstrap import bootstrap
        from lakeproof.snapshot.run import SnapshotIncompleteError
        from lakeproof.state.due_copies import already_copied

        selected = [table for key, table in tables.items() if key in context.selected_asset_keys]
        kept: Mapping[TableName, Copied] = {}
        if not config.copy_again:
            kept = run_engine(lambda _stop: already_copied(settings.config(), source.name, selected))
        if kept:
            context.log.warning(_not_copied(source.name, list(kept)))
        for table, copy in kept.items():
            size = {"copied": False} | md.size(copy.rows, copy.bytes, copy.chunks)
            yield md.result(copy_event(source.name, table, copy.consistent_point, size))
        chosen = [table for table in selected if table not in kept]
        if not chosen:
            return
        progress = SnapshotObservations(source.name, set(chosen), context.log_event)
        report = to_run_log(context.log.info, progress.take)
        failure: dg.Failure | None = None
        try:
            snapshots = run_engine(
                lambda stop: bootstrap(settings.config(), source.name, chosen, report, stop, again=True),
                progress.observe,
            )
        except dg.Failure as failed:
            # Some tables could not be copied; the others are complete and are reported before the run fails.
            if not isinstance(failed.__cause__, SnapshotIncompleteError):
                raise
            failure, snapshots = failed, failed.__cause__.report
        for table in sorted(snapshots.tables.keys() & set(chosen)):
            yield md.result(snapshot_event(source.name, table, snapshots, config.reason))
        if failure is not None:
            raise failure

    return snapshot


def _not_copied(source: str, tables: Sequence[TableName]) -> str:
    """Return the line of a run that leaves out what is copied already."""
    names = ", ".join(map(str, tables[:_NAMES_MAX])) + (", …" if len(tables) > _NAMES_MAX else "")
    return (
        f"not copied again, being in the lake or on the way to it, and not held: {names}; to copy them again, Materialize "
        f"them or launch {source}_bootstrap with `ops: {{snapshot_{source}: {{config: {{copy_again: true}}}}}}`"
    )


def copy_event(
    source: str, table: TableName, point: Lsn, size: md.Metadata, how: str | None = None
) -> dg.AssetMaterialization:
    """Return the event of a table's copy at a position; `size` has its rows, bytes and chunks, and more."""
    metadata = md.merged(md.lsns(consistent_point=point), md.optional(**size))
    return md.event(table_key(Layer.SNAPSHOT, source, table), metadata, point, how)


def snapshot_event(source: str, table: TableName, result: "SnapshotReport", reason: str) -> dg.AssetMaterialization:
    """Return the event of a copy that a run has made."""
    copy = result.tables[table] if table in result.tables else result.kept[table]
    more = {
        "copied": True,
        "slot": result.slot,
        "seconds": copy.seconds,
        "reason": reason or None,
        "rows_per_s": round(copy.rows / copy.seconds) if copy.seconds else None,
    }
    return copy_event(source, table, copy.consistent_point, md.size(copy.rows, copy.bytes, copy.chunks) | more)


def copies_unseen(
    instance: dg.DagsterInstance, lake: SourceLake, tables: Collection[TableName]
) -> Iterator[dg.AssetMaterialization]:
    """Yield an event for each table whose newest complete copy, of a command, is later than the one that Dagster knows.

    Before each run downstream of an asset without an event Dagster warns that the run may fail, whatever the lake has.
    """
    from lakeproof.landing.chain import newest_incarnation
    from lakeproof.snapshot.folder import finished_tables

    incarnation = newest_incarnation(lake)
    copies = {} if incarnation is None else finished_tables(lake, incarnation)
    seen = newest_events(instance, Layer.SNAPSHOT, lake.source, tables)
    points = {table: event.metadata.get("consistent_point") for table, event in seen.items()}
    for table in tables:
        point = points.get(table)
        reported = Lsn.ZERO if point is None else Lsn.parse(str(point.value))
        if table in copies and reported < copies[table].consistent_point:
            copy, copied = copies[table], copies[table].table
            size = md.size(copied.rows, copied.bytes, len(copied.chunks))
            yield copy_event(lake.source, table, copy.consistent_point, size, "copied outside of Dagster")


def newest_events(
    instance: dg.DagsterInstance, layer: Layer, source: str, tables: Collection[TableName]
) -> dict[TableName, dg.AssetMaterialization]:
    """Return the newest event that Dagster has of each table, for those that have one."""
    keys = {table_key(layer, source, table): table for table in tables}
    newest = {}
    for record in instance.get_asset_records(list(keys)):
        event = record.asset_entry.last_materialization
        if event is not None and event.asset_materialization is not None:
            newest[keys[record.asset_entry.asset_key]] = event.asset_materialization
    return newest


# An observation is a row in Dagster's database, and each copying connection makes one: two connections make 240 an hour.
INTERVAL_S = 30.0


class SnapshotObservations:
    """Takes events from the engine's threads, and logs observations of `tables` from the run's own thread."""

    def __init__(
        self,
        source: str,
        tables: Collection[TableName],
        log_event: Callable[[dg.AssetObservation], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._tables = {table.key: table for table in tables}
        self._log_event = log_event
        self._clock = clock
        self._newest: Event | None = None
        self._last = clock()

    def take(self, event: Event) -> None:
        """Take an event; may be called from any thread."""
        if event.kind == "bootstrap.progress":
            self._newest = event

    def observe(self) -> None:
        """Log observations if they are due; called in the run's thread, as often as it likes."""
        newest = self._newest
        if newest is None or self._clock() - self._last < INTERVAL_S:
            return
        self._newest = None
        self._last = self._clock()
        fields = newest.fields
        snapshot = md.optional(
            **{f"snapshot_{name}": fields.get(name) for name in ("rows", "bytes", "tables", "tables_done", "fraction")},
            rows_per_s=fields.get("rows_per_s"),
            bytes_per_s=fields.get("bytes_per_s"),
            seconds_left=fields.get("seconds_left"),
            consistent_point=fields.get("consistent_point"),
        )
        for key, copying in fields.get("copying", {}).items():
            if key in self._tables:
                asset = table_key(Layer.SNAPSHOT, self._source, self._tables[key])
                self._log_event(dg.AssetObservation(asset, metadata={**snapshot, **copying}))
