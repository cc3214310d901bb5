"""The drain as an asset: one long-lived run per slot, which reports each table's progress now and then.

Reading the slot belongs to `lakeproof.commands.drain`, how often to report to `tally`, and who keeps a run alive to
`orchestration.policies.drain`. No Spark and no pool here: PostgreSQL admits one reader per slot, that is the lock.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Literal

import dagster as dg
from pydantic import Field

from assets.slots import state_metadata
from assets.support import metadata as md
from assets.support.engine_call import call
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, table_key
from assets.support.specs import table_spec
from assets.support.throttle import Stretch, Tally
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.counts import Counts
from lakeproof.drain.until import Until
from lakeproof.errors import LakeproofError
from lakeproof.names import TableName
from resources import Settings


class DrainRun(dg.Config):
    """When a drain ends: by default when it has taken what is there now, as a person who materializes it means."""

    until: Literal["caught_up", "max_seconds"] = "caught_up"
    max_seconds: float = Field(
        default=3600, gt=0, description="with until: max_seconds, which is what the sensor asks for"
    )
    event_seconds: float = Field(default=60, ge=1, description="a table that changes gets an event at most this often")

    def as_until(self) -> Until:
        """The engine's word for it."""
        return Until.caught_up() if self.until == "caught_up" else Until.seconds(self.max_seconds)


def changes_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """The changes of one source's tables, landed."""

    @dg.multi_asset(
        name=f"drain_{source.name}",
        specs=[_spec(config, source, table) for table in source.tables],
        can_subset=False,
    )
    def changes(
        context: dg.AssetExecutionContext, config: DrainRun, settings: Settings
    ) -> Iterator[dg.MaterializeResult[None]]:
        tally = Tally(config.event_seconds)
        report_event = to_run_log(context.log.info)

        def tell(stretches: Mapping[TableName, Stretch]) -> None:
            slot = _slot(settings, source) if stretches else {}
            for table, stretch in stretches.items():
                if table in source.tables:
                    context.log_event(_event(source, table, md.merged(slot, _progress(source, stretch))))

        def now_and_then() -> None:
            if config.until == "max_seconds":
                tell(tally.take_due(time.monotonic()))

        try:
            report = call(
                lambda stop: drain(
                    settings.config(), source.name, config.as_until(), report_event, stop, on_flush=tally.add
                ),
                meanwhile=now_and_then,
            )
        except BaseException:
            # Also where a person ended the run: what is durable is told, so that plots have no holes.
            tell(tally.take_all(time.monotonic()))
            raise
        if config.until == "max_seconds":
            tell(tally.take_all(time.monotonic()))
        else:
            slot = _slot(settings, source)
            for table in source.tables:
                whole = Stretch(
                    report.start_lsn, report.end_lsn, report.tables.get(table, Counts()), report.transactions
                )
                yield dg.MaterializeResult(
                    asset_key=table_key(Layer.CHANGES, source.name, table),
                    data_version=md.data_version(report.end_lsn),
                    metadata=md.merged(slot, _progress(source, whole), {"reason_for_end": report.reason_for_end}),
                )

    return changes


def _spec(config: Config, source: SourceConfig, table: TableName) -> dg.AssetSpec:
    return table_spec(
        config,
        source,
        table,
        Layer.CHANGES,
        deps=[table_key(layer, source.name, table) for layer in (Layer.POSTGRES, Layer.SNAPSHOT)],
        place=f"{source.name}/landing",
        kinds={"postgres", "parquet"},
        description=(
            f"What was committed to {table}, as read from slot {source.slot}. The slot drain sensor keeps a run at work; "
            "Materialize takes what is there now and ends."
        ),
    )


def _slot(settings: Settings, source: SourceConfig) -> md.Metadata:
    """How the server sees the slot; nothing where it can't be asked, which is no reason to end a drain."""
    try:
        return state_metadata(source, settings.slot_look(source.name))
    except LakeproofError:
        return {}


def _progress(source: SourceConfig, stretch: Stretch) -> md.Metadata:
    counts = stretch.counts
    first, last = _time(stretch.first_commit_us), _time(stretch.last_commit_us)
    return md.merged(
        {"slot": source.slot, "publication": source.publication},
        md.lsns(start_lsn=stretch.start_lsn, end_lsn=stretch.end_lsn),
        {
            "inserts": counts.inserts,
            "updates": counts.updates,
            "deletes": counts.deletes,
            "truncates": counts.truncates,
            "transactions": stretch.transactions,
            "landed_bytes": counts.bytes,
        },
        md.times(first_commit=first, last_commit=last),
        md.known(lag_seconds=stretch.lag_s, lag_seconds_max=stretch.lag_s_max),
    )


def _time(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1e6, timezone.utc)


def _event(source: SourceConfig, table: TableName, metadata: md.Metadata) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=table_key(Layer.CHANGES, source.name, table),
        metadata=metadata,
        tags={"dagster/data_version": metadata["end_lsn"]},
    )
