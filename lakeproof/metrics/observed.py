"""Puts metrics around a drain or a follower: the one place at which the work and its figures meet.

The figures do not belong here (`drain_state.py`, `follow_state.py`, `lake_state.py`), nor the work. A drain
has the newest cut's position from here, too, which it reports to the server as replayed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof import __version__
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.counts import Flush
from lakeproof.drain.pulse import Pulse
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Report
from lakeproof.lake.records.store import CutTail
from lakeproof.landing.chain import newest_incarnation
from lakeproof.metrics import definitions as m
from lakeproof.storage.open import folder_to_check
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport
    from lakeproof.metrics.samples import State
    from lakeproof.views.round import ViewReport


# The pause between two looks: a look at a file in a folder, a request on an object store.
_LOOK_S, _LOOK_S_REMOTE = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class ObservedDrain:
    """The parts that a drain is run with: whom it reports to, and the pulse that it keeps."""

    report: Report
    on_flush: Callable[[Flush], None] | None
    pulse: Pulse


@contextmanager
def observed_drain(
    config: Config, source: SourceConfig, report: Report, on_flush: Callable[[Flush], None] | None
) -> Iterator[ObservedDrain]:
    """Serve the metrics of a drain that goes on while the block runs, if the configuration has an address for them."""
    pulse = Pulse()
    with _applied_is_known(config.location, source.name, pulse):
        if source.drain.metrics is None:
            yield ObservedDrain(report, on_flush, pulse)
            return
        # A process without metrics does not load them.
        from lakeproof.metrics.drain_state import DrainCounters, DrainReadiness, PulseSamples, SlotSamples
        from lakeproof.metrics.lake_state import LakeSamples
        from lakeproof.metrics.samples import Registry, TableLabels
        from lakeproof.metrics.server import MetricsServer, Served

        readiness = DrainReadiness(pulse)
        registry = Registry(
            _process("drain", readiness.why_not_ready),
            PulseSamples(source.name, pulse),
            SlotSamples(config, source),
            LakeSamples(config, source.name),
        )
        registry.add_process()
        counters = DrainCounters(registry, source.name, TableLabels(config.metrics.tables_max))

        def flushed(flush: Flush) -> None:
            counters.flushed(flush)
            if on_flush is not None:
                on_flush(flush)

        observed = _observed(report, counters.observe, readiness.observe)
        served = Served(registry, readiness.why_not_ready, readiness.why_not_alive)
        with MetricsServer(source.drain.metrics, served, report):
            yield ObservedDrain(observed, flushed, pulse)


@dataclass(frozen=True, slots=True)
class ObservedFollow:
    """The parts that a follower is run with: whom it reports events, cuts and refreshes to."""

    report: Report
    on_cuts: Callable[[Mapping[str, Sequence[CutReport]]], None]
    on_views: Callable[[Sequence[ViewReport]], None]


@contextmanager
def observed_follow(
    config: Config, name: str, sources: Sequence[str], follow: ObservedFollow
) -> Iterator[ObservedFollow]:
    """Serve the metrics of a follower while the block runs, at the address that the first of its sources has for them."""
    addresses = [config.source(source).compaction.metrics for source in sources]
    address = next((a for a in addresses if a is not None), None)
    if address is None:
        yield follow
        return
    from lakeproof.metrics.follow_state import FollowCounters, FollowReadiness
    from lakeproof.metrics.lake_state import LakeSamples
    from lakeproof.metrics.samples import Registry, TableLabels
    from lakeproof.metrics.server import MetricsServer, Served

    readiness = FollowReadiness(name)
    lakes = [LakeSamples(config, source) for source in sources]
    registry = Registry(_process("compact", readiness.why_not_ready), readiness, *lakes)
    registry.add_process()
    counters = FollowCounters(registry, name, sources, TableLabels(config.metrics.tables_max))

    def on_cuts(cuts: Mapping[str, Sequence[CutReport]]) -> None:
        counters.cuts(cuts)
        follow.on_cuts(cuts)

    def on_views(views: Sequence[ViewReport]) -> None:
        counters.refreshed(views)
        follow.on_views(views)

    report = _observed(follow.report, counters.observe, readiness.observe)
    served = Served(registry, readiness.why_not_ready)
    with MetricsServer(address, served, follow.report):
        yield ObservedFollow(report, on_cuts, on_views)


def _observed(report: Report, *observers: Callable[[Event], None]) -> Report:
    """Return a report that passes each event to the observers first."""

    def observed(event: Event) -> None:
        for observe in observers:
            observe(event)
        report(event)

    return observed


def _process(command: str, why_not_ready: Callable[[], str | None]) -> State:
    from lakeproof.metrics.samples import Sample

    def state() -> Iterator[Sample]:
        yield Sample(m.INFO, 1.0, {"version": __version__, "command": command})
        yield Sample(m.READY, float(why_not_ready() is None))

    return state


@contextmanager
def _applied_is_known(location: LakeLocation, source: str, pulse: Pulse) -> Iterator[None]:
    """Keep `pulse.applied` at the newest cut's position while the block runs; None if there is none of this landing.

    The lake may hang: a thread of its own looks, and the drain has the position that was seen last.
    """
    ended = threading.Event()
    tail = CutTail(SourceLake.open(location, source))
    pause_s = _LOOK_S_REMOTE if folder_to_check(location) is None else _LOOK_S

    def work() -> None:
        number = None
        while not ended.wait(pause_s):
            try:
                cut = tail.look()
                if cut is not None and cut.number != number:
                    is_ours = cut.incarnation == newest_incarnation(tail.lake)
                    pulse.applied = cut.position if is_ours else None
                    number = cut.number
            except (LakeproofError, OSError):
                # The compaction reports what is wrong with a cut; until then the position stays.
                continue

    thread = threading.Thread(target=work, name="lakeproof applied", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
