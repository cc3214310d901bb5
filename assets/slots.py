"""A source's slot as an asset: its positions at intervals, kept for good, and checks of how long it lasts and of the lake.

Judging a slot does not belong here (`lakeproof.drain.slot_health`; the configuration has the thresholds), nor finding out
what the lake lacks (`lakeproof.state.shortfall`). Drain runs and their events are deleted after a while; the runs of this
asset are few enough to keep.
"""

from collections.abc import Iterator

import dagster as dg

from assets.catalog import Catalog
from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.event_log import to_process_log
from assets.support.keys import Layer
from assets.support.step import asset_step
from lakeproof.config.model import SourceConfig
from lakeproof.descriptions import describe_quietly
from lakeproof.drain.slot_health import Level
from lakeproof.errors import LakeproofError
from lakeproof.state.shortfall import shortfall
from lakeproof.state.slot import SlotStatus
from lakeproof.state.source_state import SourceState
from resources import Settings

CHECK, WHOLE = "slot_health", "lake_is_whole"
_DESCRIPTIONS = {
    CHECK: "Compares the slot with the configuration's thresholds (health): if it can be read, how much WAL it keeps, how "
    "long nobody has read it, and when the server would invalidate it at the present rate. The slot drain sensor updates "
    "the result when it changes.",
    WHOLE: "Every published table is in the lake, or on its way; every table was compared with the source, and was equal; "
    "no day that `daily` asks for is missing; nobody but lakeproof wrote a view. WARN: a table was not compared, or a day "
    "is missing. The same is in `lakeproof status`.",
}


def slot_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the asset of one source's slot, with its check."""
    key = Layer.SLOTS.key(source.name)
    about = f"The position of slot {source.slot} on the server, and the WAL that it keeps there."

    @asset_step(
        f"slots__{source.name}",
        # It has no result if the server can't be reached.
        [catalog.spec(key, about, {"postgres"})],
        checks=[dg.AssetCheckSpec(name, asset=key, description=text) for name, text in _DESCRIPTIONS.items()],
    )
    def progress(settings: Settings) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        yield whole_result(settings, source.name)
        try:
            status = run_engine(lambda _stop: settings.slot_status(source.name))
        except dg.Failure as failure:
            # The check gives the reason; without a result it would show nothing.
            yield slot_check_result(source, failure.description or "")
            raise
        # Without a slot too: Dagster skips what depends on an asset that yields nothing, and a drain says more clearly why.
        state = state_metadata(source, status) or {"slot": source.slot, "health": Level.ERROR.value}
        yield dg.MaterializeResult(asset_key=key, metadata=state)
        yield slot_check_result(source, status)
        if status.has_landing:
            describe_quietly(settings.config(), source.name, to_process_log)

    return progress


def state_metadata(source: SourceConfig, status: SlotStatus) -> md.Metadata:
    """Return the slot's positions and health; nothing if there is no slot."""
    state, health = status.state, status.health
    if state is None or health is None:
        return {}
    figures = md.optional(
        wal_bytes_per_s=health.wal_bytes_per_s, seconds_left=health.seconds_left, unread_seconds=health.unread_s
    )
    return md.merged(
        {"slot": source.slot, "health": health.level.value},
        slot_positions(status),
        md.optional(
            wal_retained_bytes=state.retained_bytes,
            wal_status=state.wal_status,
            safe_wal_size=state.safe_wal_size,
        ),
        # Without decimals, which nobody measures.
        {name: round(figure) for name, figure in figures.items()},
    )


def slot_positions(status: SlotStatus) -> md.Metadata:
    """Return the slot's positions, and how far it is behind the server's end; nothing if there is no slot."""
    state = status.state
    if state is None:
        return {}
    return md.merged(
        md.lsns(confirmed_flush_lsn=state.confirmed_flush_lsn, restart_lsn=state.restart_lsn),
        md.optional(wal_lag_bytes=state.lag_bytes),
    )


def slot_check_result(source: SourceConfig, status: SlotStatus | str) -> dg.AssetCheckResult:
    """Return the check's result: how long the slot will last, and if a drain could continue from it at all.

    A text is the reason why the slot can't be read, most often that its server can't be reached.
    """
    level, reasons = Level.ERROR, [f"slot {source.slot} does not exist"]
    if isinstance(status, str):
        reasons = [f"the slot can't be read: {status}"]
    elif status.health is not None:
        level, reasons = status.health.level, list(map(str, status.health.reasons))
    if isinstance(status, SlotStatus) and status.gap is not None:
        level, reasons = Level.ERROR, [str(status.gap), *reasons]
    return dg.AssetCheckResult(
        asset_key=Layer.SLOTS.key(source.name),
        check_name=CHECK,
        passed=level is Level.OK,
        severity=dg.AssetCheckSeverity.ERROR if level is Level.ERROR else dg.AssetCheckSeverity.WARN,
        description="; ".join(reasons) or None,
        metadata={} if isinstance(status, str) else state_metadata(source, status),
    )


def whole_result(settings: Settings, source: str) -> dg.AssetCheckResult:
    """Return the check's result; what can't be read of the lake fails it, and no server is asked.

    Held tables are not among what is lacking: they have events and alerts of their own.
    """
    numbers: dict[str, int] = {}
    try:
        config = settings.config()
        lacking = shortfall(config, SourceState.of(config, source))
        unread = [f"the lake can't be read: {problem}" for problem in dict.fromkeys(lacking.unread.values())]
        text = "\n".join([*unread, *lacking.sentences(source)])
        is_error = bool(unread or lacking.waited_for or lacking.differing or lacking.views)
        passed, numbers = not (unread or lacking), lacking.counts
    except LakeproofError as error:
        passed, is_error, text = False, True, f"the lake can't be read: {error}"
    return dg.AssetCheckResult(
        asset_key=Layer.SLOTS.key(source),
        check_name=WHOLE,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=text or None,
        metadata=numbers,
    )
