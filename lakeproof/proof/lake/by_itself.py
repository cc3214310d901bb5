"""Proofs of the lake by itself: histories that must be what was written, and views that must be what their queries give."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeproof.concurrently import few_at_a_time
from lakeproof.config.model import Config
from lakeproof.config.table_names import table_text
from lakeproof.config.view_graph import readers_of
from lakeproof.errors import LakeError
from lakeproof.events import Event, RunControl
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.compare import FilledBuckets
from lakeproof.proof.lake.history import HistoryProof, check_history, prove_history
from lakeproof.proof.lake.side import LakeReader
from lakeproof.proof.record import histories_due, read_record, views_due
from lakeproof.proof.result import LakeProof
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from lakeproof.views.audit import ViewProof


@dataclass(frozen=True, slots=True)
class LakePart:
    """The histories and views that a proof reads, in place of those that are due."""

    histories: Sequence[TableName] = ()
    views: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LakeScope:
    """The scope of a proof of the lake: histories of `tables` and views that are due, or all, or `part`.

    `current`: the sums of current tables that were read already, at the cut's versions.
    """

    tables: Sequence[TableName] = ()
    everything: bool = False
    part: LakePart | None = None
    current: Mapping[TableName, FilledBuckets] = field(default_factory=dict)


def prove_lake(
    config: Config, spark: SparkOnDemand, control: RunControl, lake: SourceLake, scope: LakeScope, *, cut: Cut
) -> LakeProof:
    """Prove the histories of a source's tables at `cut`, and audit the views that read the source, as `scope` says."""
    name, part = lake.source, scope.part
    source = config.source(name)
    in_lake = [t for t in (scope.tables if part is None else part.histories) if t in cut.tables]
    rows = {t: cut.tables[t].history_sum.rows for t in in_lake}
    every = scope.everything or part is not None
    reader, last = LakeReader.of(lake, spark, source.compaction.engine), read_record(lake)
    chosen = in_lake if every else histories_due(rows, last.tables, source.proof_rows)

    def history(table: TableName) -> HistoryProof | None:
        if control.stop.requested:
            return None
        return prove_history(reader, table, cut.tables[table], source.buckets, scope.current.get(table))

    histories = dict[TableName, HistoryProof]()
    for table, history_proof in few_at_a_time(chosen, history, source.compaction.threads):
        if history_proof is not None:
            control.report(_event(f"history of {table}", history_proof.status, history_proof.reason))
            histories[table] = history_proof
    views = {view.name: view for view in readers_of(config.views, [name])}
    due = views_due(list(views), last.views)
    audited: dict[str, ViewProof] = {}
    for view in list(views) if scope.everything else due if part is None else part.views:
        if control.stop.requested:
            break
        # Imported here because it imports Spark.
        from lakeproof.views.audit import NEVER_REFRESHED, audit_view, was_refreshed

        proof = NEVER_REFRESHED
        if was_refreshed(lake.store, view):
            proof = audit_view(spark.get().newSession(), lake.store, views[view])
        audited[view] = proof
        control.report(_event(f"view {view}", proof.status, proof.reason))
    return LakeProof(int(cut.number), cut.position, histories, audited)


def refuse_damaged(reader: LakeReader, cut: Cut, tables: Iterable[TableName]) -> None:
    """Raise LakeError for the first of `tables` whose history is not what was written; reads them."""
    lake = reader.lake
    for table in tables:
        proof = check_history(reader, table, cut.table(table, lake.source))
        if proof.status != "equal":
            named = shlex.quote(table_text(table))
            raise LakeError(
                f"{lake.source}: {table}",
                f"current is not made from a history that is damaged: {proof.reason}",
                f"run `lakeproof prove {lake.source} --tables {named} --repair`, which makes it from the source",
            )


def _event(what: str, status: str, reason: str | None) -> Event:
    because = f": {reason}" if reason else ""
    return Event("prove.lake", f"{what} {status}{because}", {"of": what, "status": status})
