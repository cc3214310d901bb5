"""The second part of a proof, of the lake alone: histories are whole and add up to current, views are what they should be.

What is compared belongs to `lakeproof.proof.history` and `lakeproof.views.audit`, the first part to `prove`, which calls
this under its lease when the source's snapshot is closed: nothing holds the source's VACUUM back meanwhile.

A proof takes as many histories as `proof_rows` has room for, those first that were proved longest ago, one at least, and one
view; or all of them, if that is asked for; or exactly those that are named.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from lakeproof.config.model import Config
from lakeproof.config.table_names import write_table
from lakeproof.errors import LakeError
from lakeproof.events import Event, Report, Stop, silent
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.lease import hold_lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark.session import driver_lives
from lakeproof.names import TableName
from lakeproof.proof.history import HistoryProof, check_history, prove_history
from lakeproof.proof.record import histories_due, read_proved, read_views, record, views_due
from lakeproof.proof.result import LakeProof, ProofReport
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.views.audit import ViewProof, audit_view
from lakeproof.views.maintain import views_of

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class LakePart:
    """The histories and views that a proof looks at, in place of those whose turn it is."""

    histories: Sequence[TableName] = ()
    views: Sequence[str] = ()


def prove_lake(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    tables: Sequence[TableName],
    spark: SparkSession,
    report: Report,
    stop: Stop,
    *,
    cut: Cut,
    everything: bool = False,
    part: LakePart | None = None,
) -> LakeProof:
    """Prove histories of `tables`, and audit views that read the source: those whose turn it is, or all, or `part`."""
    source, paths, store = config.source(name), LakePaths(config.lake, name), open_store(config.lake)
    there = [t for t in (tables if part is None else part.histories) if t in cut.tables]
    rows = {t: cut.tables[t].history_sum.rows for t in there}
    every = everything or part is not None
    chosen = there if every else histories_due(rows, read_proved(store, paths), source.proof_rows)

    def history(table: TableName) -> HistoryProof:
        proof = prove_history(spark, paths, table, cut.tables[table], source.buckets)
        report(_event(f"history of {table}", proof.status, proof.reason))
        return proof

    histories = _in_turn(chosen, history, stop)
    views = {view.name: view for view in views_of(config, name)}
    due = views_due(list(views), read_views(store, paths))
    named = list(views) if everything else due if part is None else part.views

    def view(name: str) -> ViewProof:
        proof = audit_view(spark.newSession(), store, config.lake, views[name])
        report(_event(f"view {name}", proof.status, proof.reason))
        return proof

    return LakeProof(int(cut.number), histories, _in_turn(named, view, stop))


@without_java(lambda _config, name, *_, **__: name)
def prove_in_lake(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    part: LakePart,
    spark: SparkSession,
    report: Report = silent,
    stop: Stop | None = None,
) -> LakeProof | None:
    """Prove `part` alone at the newest cut, without the source; None if the lake has no cut.

    Raises TransientError where another process holds the lease.
    """
    paths, store = LakePaths(config.lake, name), open_store(config.lake)
    with driver_lives(spark), hold_lease(store, paths, spark):
        cut = newest_cut(store, paths)
        if cut is None:
            return None
        lake = prove_lake(config, name, (), spark, report, Stop() if stop is None else stop, cut=cut, part=part)
        record(store, paths, cut.incarnation, ProofReport(name, None, {}, lake))
    return lake


def refuse_damaged(spark: SparkSession, paths: LakePaths, cut: Cut, tables: Iterable[TableName]) -> None:
    """Raise LakeError for the first of `tables` whose history is not what was written; reads them."""
    for table in tables:
        proof = check_history(spark, paths, table, cut.table(table, paths.source))
        if proof.status != "equal":
            named = shlex.quote(write_table(table))
            raise LakeError(
                f"{paths.source}: {table}",
                f"current is not made from a history that is damaged: {proof.reason}",
                f"run `lakeproof prove {paths.source} --tables {named} --repair`, which makes it from the source",
            )


def _in_turn(names: Sequence[_K], prove: Callable[[_K], _V], stop: Stop) -> dict[_K, _V]:
    """Each that is reached before the run is told to stop."""
    found = {}
    for name in names:
        if stop.requested:
            break
        found[name] = prove(name)
    return found


def _event(what: str, status: str, reason: str | None) -> Event:
    told = f": {reason}" if reason else ""
    return Event("prove.lake", f"{what} {status}{told}", {"of": what, "status": status})
