"""Compaction: numbered cycles write every table's history and current, each up to one position.

The cycle does not belong here (`lakeproof.commands.compact`), nor a run that goes on (`continuous.py`). One multi-asset per
source, not per table: a cut covers all of a source's tables. The sources of a group have one multi-asset together: they are
compacted as one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import dagster as dg
from pydantic import Field

from assets.catalog import Catalog
from assets.continuous import Continuous, follow_and_report
from assets.cycles import TableTotals, layers, totals
from assets.support import metadata as md
from assets.support.command_call import run_command
from assets.support.keys import Layer, proof_key, table_key
from lakeproof.cli.results import from_json
from lakeproof.config.model import Config, SourceConfig
from resources import Compute, Settings

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport

# Raise it when the same changes would produce different rows: the UI then marks older materializations as outdated.
_CODE_VERSION = "1"


class CompactionRun(dg.Config):
    """Options of a compaction. By default it brings the lake to the landing's end and ends, as a person expects.

    The tables that it reports are all of them for a person, only the changed ones for the schedule.
    """

    report: Literal["all", "changed"] = Field(
        default="all", description="`changed` leaves out the tables that did not change"
    )
    until: Literal["caught_up", "max_seconds"] = Field(
        default="caught_up", description="`max_seconds` goes on with each change that lands, as the sensor's runs do"
    )
    max_seconds: float = Field(default=3600, gt=0, description="for `until: max_seconds`")
    event_seconds: float = Field(default=60, ge=1, description="minimum seconds between two events of one table")


@dataclass(frozen=True, slots=True)
class CompactionUnit:
    """What one run compacts: a source, or all sources of a group; `name` is that of the source or group.

    `sources` are those with tables that Dagster shows.
    """

    name: str
    sources: tuple[SourceConfig, ...]
    is_group: bool = False

    @property
    def is_continuous(self) -> bool:
        """True if a run is kept going, False if a schedule starts runs."""
        return all(source.compaction.mode == "continuous" for source in self.sources)


def compaction_units(config: Config) -> list[CompactionUnit]:
    """Return a unit for each group, and for each source that is in none, if it has tables."""
    groups = [
        CompactionUnit(group, tuple(s for n in names if (s := config.sources[n]).tables), is_group=True)
        for group, names in config.groups.items()
    ]
    alone = [CompactionUnit(s.name, (s,)) for s in config.sources.values() if config.group_of(s.name) is None]
    return [unit for unit in [*alone, *groups] if any(source.tables for source in unit.sources)]


def compaction_asset(catalog: Catalog, unit: CompactionUnit) -> dg.AssetsDefinition:
    """Return the asset that brings history and current of every table of a unit to the end of the landing."""

    @dg.multi_asset(
        name=f"compact_{unit.name}",
        specs=[spec for source in unit.sources for spec in _specs(catalog, source)],
        can_subset=False,
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionRun, settings: Settings, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None]]:
        if config.until == "max_seconds":
            event_s, tables = config.event_seconds, {s.name: s.tables for s in unit.sources}
            follow_and_report(context, settings, compute, Continuous(unit.name, tables, config.max_seconds, event_s))
            return
        names = [source.name for source in unit.sources]
        cuts = _compact(context, compute, unit, lambda: settings.compacted_through(names))
        for source in unit.sources:
            done = totals(cuts.get(source.name, ()))
            every = source.tables if config.report == "all" else [table for table in source.tables if table in done]
            yield from map(
                md.result, layers(settings, source.name, {table: done.get(table, TableTotals()) for table in every})
            )

    return compaction


def _compact(
    context: dg.AssetExecutionContext, compute: Compute, unit: CompactionUnit, achieved: Callable[[], str]
) -> "Mapping[str, Sequence[CutReport]]":
    """Return the cycles of each source; `achieved` says what there is if the run is stopped."""
    from lakeproof.lake.cycle.runner import CutReport

    if unit.is_group:
        sources = run_command(context, compute, "compact", "--group", unit.name, achieved=achieved)["sources"]
    else:
        sources = {unit.name: run_command(context, compute, "compact", unit.name, achieved=achieved)}
    return {source: from_json(list[CutReport], result["cuts"]) for source, result in sources.items()}


def _specs(catalog: Catalog, source: SourceConfig) -> Iterator[dg.AssetSpec]:
    for table in source.tables:
        history, current = (table_key(layer, source.name, table) for layer in (Layer.HISTORY, Layer.CURRENT))
        texts = {
            history: f"Every change of {table}, as a complete row after the change, with its position and commit time.",
            current: f"The table {table} as it is at the newest cut. If it is equal to the source stands on its proof, "
            f"`{proof_key(current).to_user_string()}`, and what is expected of its rows on its expectations: both are "
            "linked in this asset's metadata.",
        }
        deps = [table_key(layer, source.name, table) for layer in (Layer.SNAPSHOT, Layer.CHANGES)]
        for key, text in texts.items():
            yield catalog.spec(key, text, {"deltalake", "spark"}, deps, code_version=_CODE_VERSION)
