"""A source's slot as an asset: its positions now and then, kept for good, and a check of how long it will last.

Judging belongs to `lakeproof.drain.slot_health`, thresholds to the configuration. Runs of drains are removed after a
while, and their events with them; the runs of this asset are few enough to stay.
"""

from collections.abc import Iterator

import dagster as dg

from assets.support import metadata as md
from assets.support.engine_call import call
from assets.support.keys import Layer, slot_key
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.slot_health import Level
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from resources import Settings, SlotLook

CHECK = "slot_health"


def slot_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """The slot of one source, with its check."""
    key, landings = slot_key(source.name), LakePaths(config.lake, source.name).landings

    @dg.asset(
        key=key,
        group_name=Layer.SLOTS.value,
        kinds={"postgres"},
        description=f"Where slot {source.slot} stands on the server, and what it keeps there.",
        metadata={"dagster/table_name": f"slots.{source.name}", "dagster/uri": open_store(config.lake).url(landings)},
        check_specs=[dg.AssetCheckSpec(CHECK, asset=key, description=_DESCRIPTION)],
        output_required=False,
    )
    def progress(settings: Settings) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        try:
            found = call(lambda _stop: settings.slot_look(source.name))
        except dg.Failure as failure:
            # The check says why; without a result it would be without a word.
            yield unseen(source, failure.description or "")
            raise
        if found.state is not None:
            yield dg.MaterializeResult(asset_key=key, metadata=state_metadata(source, found))
        yield result(source, found)

    return progress


_DESCRIPTION = (
    "Whether the slot can be looked at, how much WAL it keeps, for how long nobody has read it, and when the server would "
    "invalidate it at the present rate, against the thresholds of the configuration (health). The slot drain sensor tells "
    "it anew when it has changed."
)


def state_metadata(source: SourceConfig, found: SlotLook) -> md.Metadata:
    """The slot's positions and prospects; nothing where there is no slot."""
    state, health = found.state, found.health
    if state is None or health is None:
        return {}
    return md.merged(
        {"slot": source.slot, "health": health.level.value},
        md.lsns(confirmed_flush_lsn=state.confirmed_flush_lsn, restart_lsn=state.restart_lsn),
        md.known(
            wal_lag_bytes=state.lag_bytes,
            wal_retained_bytes=state.retained_bytes,
            wal_status=state.wal_status,
            safe_wal_size=state.safe_wal_size,
            wal_bytes_per_s=health.wal_bytes_per_s,
            seconds_left=health.seconds_left,
            unread_seconds=health.unread_s,
        ),
    )


def result(source: SourceConfig, found: SlotLook) -> dg.AssetCheckResult:
    """What the UI shows of a slot: how long it will last, and whether a drain could go on with it at all."""
    level, reasons = Level.ERROR, [f"slot {source.slot} does not exist"]
    if found.health is not None:
        level, reasons = found.health.level, list(found.health.reasons)
    if found.gap is not None:
        level, reasons = Level.ERROR, [found.gap, *reasons]
    return dg.AssetCheckResult(
        asset_key=slot_key(source.name),
        check_name=CHECK,
        passed=level is Level.OK,
        severity=dg.AssetCheckSeverity.ERROR if level is Level.ERROR else dg.AssetCheckSeverity.WARN,
        description="; ".join(reasons) or None,
        metadata=state_metadata(source, found),
    )


def unseen(source: SourceConfig, why: str) -> dg.AssetCheckResult:
    """What the UI shows of a slot that nobody can look at, most often since its server can't be reached."""
    return dg.AssetCheckResult(
        asset_key=slot_key(source.name),
        check_name=CHECK,
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"the slot can't be looked at: {why}",
    )
