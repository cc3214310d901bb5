"""Drains a source: from its slot into its landing, until a position, a time or a stop.

One connection's loop is in `lakeproof.drain.loop`, connecting again in `lakeproof.drain.supervisor`.
The slot is the lock: PostgreSQL admits one reader. If another drain holds it, a caller who waits for a position waits until
the landing has it, and a lasting drain waits for the slot.
"""

from __future__ import annotations

from collections.abc import Callable

from lakeproof.config.model import Config
from lakeproof.descriptions import describe_quietly, describing
from lakeproof.drain.counts import DrainReport, Flush
from lakeproof.drain.supervisor import Supervisor
from lakeproof.drain.until import Until
from lakeproof.events import Report, RunControl, Stop, silent
from lakeproof.metrics.observed import observed_drain
from lakeproof.storage.disk import disk_errors


def drain(
    config: Config,
    name: str,
    until: Until,
    report: Report = silent,
    stop: Stop | None = None,
    *,
    on_flush: Callable[[Flush], None] | None = None,
) -> DrainReport:
    """Drain the source `name` and return what was added; a lasting drain serves metrics, if they are configured.

    `on_flush` is called in the calling thread for each manifest that is durable, after its acknowledgement if the
    connection lasts so long. Raises ConfigError, LakeError, GapError and SourceError if a person must change something;
    FencedError (a TransientError) if another writer has taken over; TransientError if the connection was lost and
    `until` asks for a position (a lasting drain connects again); NoRoomError (a LakeError) if a disk is full and
    `until` is not `stopped` (such a drain waits for room).
    """
    source = config.source(name)
    with disk_errors(config.lake):
        if not until.lasting:
            stop = stop or Stop()
            ended = Supervisor(config, source, until, control=RunControl(report, stop), on_flush=on_flush).run()
            if not stop.requested:
                describe_quietly(config, name, report)
            return ended
        with (
            observed_drain(config, source, report, on_flush) as observed,
            describing(config, name, observed.report) as noted,
        ):
            return Supervisor(
                config,
                source,
                until,
                control=RunControl(noted, stop or Stop()),
                on_flush=observed.on_flush,
                pulse=observed.pulse,
            ).run()
