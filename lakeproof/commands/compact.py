"""Compaction: cycle after cycle, until the lake has all that the landing has.

One cycle belongs to `lakeproof.lake.cycle.steps`; when compaction runs to its callers.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.events import Event, Report, Stop
from lakeproof.lake.cycle.runner import CutReport, _Run, archive_folder, leased
from lakeproof.lake.delta.self_test import why_not
from lakeproof.lake.planning.next_incarnation import to_be_followed
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark.session import driver_lives
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.lsn import Lsn
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths


@without_java(lambda _config, name, *_, **__: name)
def compact(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    spark: SparkSession,
    report: Report,
    stop: Stop,
    end: Lsn | None = None,
    lease: Lease | None = None,
) -> list[CutReport]:
    """Run cycles until the chain's end (or `end`, exactly there) is in the lake; an interrupted cycle is finished first.

    What an incarnation before has landed goes first, then the lake crosses into the next
    (`lakeproof.lake.planning.next_incarnation`). Gives the cycles that ended here, oldest first. Takes the source's
    lease, unless the caller holds it. Raises LakeError where there is no landing, TransientError where another process
    holds the lease.
    """
    source = config.source(name)
    store, paths = open_store(config.lake), LakePaths(config.lake, name)
    newest = newest_incarnation(store, paths)
    if newest is None:
        raise LakeError(f"{name}: landing", "there is none yet", f"run `lakeproof bootstrap {name}` first")
    with driver_lives(spark), leased(lease, store, paths, spark) as held:
        run = _Run(spark, held, source.compaction, report, stop, archive_folder(source.retention), end)
        done = run.finish_interrupted()
        for incarnation in to_be_followed(store, paths, newest_cut(store, paths)):
            done += run.follow(Chain.open(store, paths, incarnation), end if incarnation == newest else None)
        why = why_not(spark) if done and source.compaction.apply == "auto" else None
        if why is not None:
            report(
                Event(
                    "compact.apply", f"changes are merged, which is slower than deletion vectors: {why}", {"why": why}
                )
            )
        return done
