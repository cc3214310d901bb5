"""Refresh views: each at the newest cuts of the sources it reads.

How one view is computed and committed belongs to `wal2delta.views.refresh`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from wal2delta.config.model import Config, ViewConfig
from wal2delta.errors import ConfigError, LakeError
from wal2delta.lake.documents import Cut
from wal2delta.lake.open import OpenedLake
from wal2delta.lake.records import newest_cut
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import Store, open_store
from wal2delta.lsn import Lsn
from wal2delta.names import CycleNumber
from wal2delta.report import Event, Report, silent
from wal2delta.views.cuts import one_refresh
from wal2delta.views.refresh import refresh_view, view_path

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


@dataclass(frozen=True, slots=True)
class ViewReport:
    """What a refresh of one view did.

    `sources` gives for each source the number and the position of the cut it was read at. Where `held` says why the view
    stands still, nothing was written and `cut` and `delta_version` are None.
    """

    view: str
    cut: CycleNumber | None
    delta_version: int | None
    inserted: int
    retracted: int
    sources: Mapping[str, tuple[CycleNumber, Lsn]] = field(default_factory=dict)
    held: str | None = None


def refresh(config: Config, view: str | None, spark: SparkSession, report: Report = silent) -> list[ViewReport]:
    """Refresh the view of that name, or every view.

    A view over a table that is held or not in the lake yet is held itself, and among every view so is one with a definition
    that is wrong (or is so since a column was renamed), a damaged document or table. Raises ConfigError for a name, else for
    a definition that is wrong, LakeError for a damaged cut or table, TransientError where another process refreshes views
    of this lake.
    """
    views = _chosen(config, view)
    store = open_store(config.lake)
    reports = []
    with one_refresh(config.lake):
        for chosen in views:
            try:
                made = _refresh_one(config, chosen, spark.newSession(), store)
            except (LakeError, ConfigError) as error:
                # What is wrong with one view's source, definition or table is no matter of the others'.
                if view is not None:
                    raise
                made = ViewReport(chosen.name, None, None, 0, 0, held=str(error))
            reports.append(made)
            report(_event(made))
    return reports


def _chosen(config: Config, view: str | None) -> list[ViewConfig]:
    if view is None:
        return list(config.views.values())
    if view not in config.views:
        known = ", ".join(sorted(config.views)) or "there are none"
        raise ConfigError(f"view {view}", f"it is not in {config.path}", f"name one of its views: {known}")
    return [config.views[view]]


def _refresh_one(config: Config, view: ViewConfig, session: SparkSession, store: Store) -> ViewReport:
    cuts = {source: newest_cut(store, LakePaths(config.lake, source)) for source, _ in view.reads.values()}
    held = _why_held(view, cuts)
    if held is not None:
        return ViewReport(view.name, None, None, 0, 0, held=held)
    known = {source: cut for source, cut in cuts.items() if cut is not None}
    opened = OpenedLake(session, config.lake, known)
    tables = {name: opened.table(source, table) for name, (source, table) in view.reads.items()}
    numbers = {source: cut.number for source, cut in known.items()}
    try:
        made = refresh_view(session, store, config.lake, view, tables=tables, sources=numbers)
    except (PySparkException, Py4JJavaError) as error:
        # The condition alone: its sentence may have values in it.
        condition = _CONDITION.search(str(error))
        if condition is None:
            raise
        raise LakeError(
            f"view {view.name}: {view_path(config.lake, view.name)}",
            f"its table, or one that it reads, is refused by Spark: {condition[1]}",
            "where it is its own, move that folder away: the next refresh makes it anew",
        ) from error
    return ViewReport(
        view=view.name,
        cut=made.number,
        delta_version=made.delta_version,
        inserted=made.inserted,
        retracted=made.retracted,
        sources={source: (cut.number, cut.position) for source, cut in known.items()},
    )


def _why_held(view: ViewConfig, cuts: Mapping[str, Cut | None]) -> str | None:
    for source, table in view.reads.values():
        cut = cuts[source]
        if cut is None or table not in cut.tables:
            return f"{source}: {table} is not in the lake yet"
        if table in cut.held:
            return f"{source}: {table} is held at {cut.held[table].at_lsn}: {cut.held[table].reason}"
    return None


def _event(made: ViewReport) -> Event:
    if made.held is not None:
        return Event("view.held", f"view {made.view} stands still: {made.held}", {"view": made.view})
    return Event(
        "view.refreshed",
        f"view {made.view}: {made.inserted} rows came, {made.retracted} went",
        {
            "view": made.view,
            "cut": made.cut,
            "delta_version": made.delta_version,
            "inserted_rows": made.inserted,
            "retracted_rows": made.retracted,
            "sources": {s: {"cut": int(n), "position": str(p)} for s, (n, p) in made.sources.items()},
        },
    )
