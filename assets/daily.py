"""Tables as they were at the end of each UTC day: a partition per day, and a check that the days add up.

Making days does not belong here (`lakeproof.commands.daily`). A backfill over any number of days in a row is one run, with
one Spark session: the days and tables that a run selects go to one command.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import dagster as dg

from assets.catalog import Catalog
from assets.support import metadata as md
from assets.support.engine_call import run_command, table_words
from assets.support.keys import SPARK_POOL, Layer, table_key
from assets.support.step import StepRun, asset_step
from lakeproof.cli.results import from_json
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import LakeproofError
from lakeproof.landing.incarnation_record import incarnations
from lakeproof.names import TableName
from lakeproof.snapshot.folder import read_request, snapshot_folders
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from resources import Compute

if TYPE_CHECKING:
    from lakeproof.commands.daily import DayReport

CHECK = "adds_up"
_DESCRIPTION = (
    "The rows of the day before and history's changes in between add up to the rows of each day of the run; the first day "
    "that is kept has none before it. WARN: nothing was compared, for the reason given."
)


def daily_tables_of(source: SourceConfig) -> list[TableName]:
    """Return the tables that are kept for each day."""
    return source.daily_among(source.tables)


def daily_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition | None:
    """Return the days of one source's chosen tables; None if the configuration chooses none."""
    tables = {table_key(Layer.DAILY, source.name, table): table for table in daily_tables_of(source)}
    if not tables:
        return None
    partitions = _days_since_first_copy(catalog.config, source)

    @asset_step(
        f"daily_{source.name}",
        [
            catalog.spec(
                key,
                f"The table {table} as it was at the end of each day (UTC, by commit time), a partition per day. A day "
                "that is not over has what is known of it so far.",
                {"deltalake", "spark"},
                [table_key(Layer.HISTORY, source.name, table)],
            ).replace_attributes(partitions_def=partitions)
            for key, table in tables.items()
        ],
        StepRun(can_subset=True, backfill_policy=dg.BackfillPolicy.single_run(), pool=SPARK_POOL),
        # One step makes all histories.
        after=[table_key(Layer.HISTORY, source.name, table) for table in list(tables.values())[:1]],
        checks=[dg.AssetCheckSpec(CHECK, asset=key, description=_DESCRIPTION) for key in tables],
    )
    def daily(
        context: dg.AssetExecutionContext, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        from lakeproof.commands.daily import DailyReport

        chosen = [table for key, table in tables.items() if key in context.selected_asset_keys]
        days = sorted(context.partition_keys)
        words = ["--days", f"{days[0]}..{days[-1]}", *table_words("--tables", chosen)]
        result = from_json(DailyReport, run_command(context, compute, "daily", source.name, *words))
        for table in chosen:
            key, results = table_key(Layer.DAILY, source.name, table), result.tables[table]
            for day in results:
                context.add_asset_metadata(_metadata(day), asset_key=key, partition_key=day.day)
            yield dg.MaterializeResult(asset_key=key)
            if dg.AssetCheckKey(key, CHECK) in context.selected_asset_check_keys:
                yield _check(key, results)

    return daily


def _days_since_first_copy(config: Config, source: SourceConfig) -> dg.DailyPartitionsDefinition:
    """Return the days since the source's first copy, today among them; today alone if there is none yet."""
    first = datetime.now(timezone.utc).date()
    try:
        lake = SourceLake.open(config.location, source.name)
        folders = (folder for incarnation in incarnations(lake) for folder in snapshot_folders(lake, incarnation))
        request = next((r for folder in folders if (r := read_request(lake, folder)) is not None), None)
        if request is not None:
            first = time_of(request.started_at).astimezone(timezone.utc).date()
    except (LakeproofError, OSError):
        pass
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), end_offset=1)


def _metadata(day: "DayReport") -> md.Metadata:
    return md.merged(
        md.lsns(position=day.position),
        {
            "dagster/partition_row_count": day.rows,
            "delta_version": day.delta_version,
            "is_over": day.is_over,
            "adds_up": day.audit.status,
        },
        md.optional(reason=day.audit.reason),
    )


def _check(key: dg.AssetKey, days: "Sequence[DayReport]") -> dg.AssetCheckResult:
    wrong = [day for day in days if day.audit.status == "differs"]
    compared = [day for day in days if day.audit.status in {"equal", "differs"}]
    is_first = any(day.audit.status == "first" for day in days)
    shown = md.table(
        {"day": d.day, "rows": d.rows, "status": d.audit.status, "reason": d.audit.reason or ""} for d in days
    )
    reason = ", ".join(f"{day.day}: {day.audit.reason}" for day in wrong) or None
    if not compared and not is_first:
        reason = f"nothing was compared: {days[0].audit.reason}" if days else "there is no day"
    elif not compared:
        reason = "the first day that is kept: the next one is compared with it"
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECK,
        passed=not wrong and (bool(compared) or is_first),
        severity=dg.AssetCheckSeverity.ERROR if wrong else dg.AssetCheckSeverity.WARN,
        description=reason,
        metadata={"days": shown, "compared": len(compared), "differing_days": len(wrong)},
    )
