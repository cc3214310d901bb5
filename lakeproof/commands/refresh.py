"""Refresh views: all at the same cuts of the sources they read, the newest when the refresh begins.

How one view is computed and committed belongs to `lakeproof.views.refresh`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import Event, Report, silent
from lakeproof.lake.read.open import OpenedLake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.records.view_cuts import newest_number, one_refresh, view_path
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark.failures import concerns_all, raise_unless_about_the_data, reason_of, without_java
from lakeproof.lake.spark.session import driver_lives
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.views.refresh import refresh_view, view_row_bytes


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


@without_java(lambda _config, view, *_, **__: "views" if view is None else f"view {view}")
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
    with driver_lives(spark), one_refresh(config.lake):
        at = _Point(store, config.lake, int(newest_number(store)) + 1)
        for chosen in views:
            try:
                made = _refresh_one(config, chosen, spark.newSession(), at)
            except (LakeError, ConfigError) as error:
                # What is wrong with one view's source, definition or table is no matter of the others'.
                if view is not None or concerns_all(error):
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


@dataclass(frozen=True, slots=True)
class _Point:
    """Where one refresh takes all its views: each source's newest cut, looked for once; `number` is the refresh's own."""

    store: Store
    lake: str
    number: int
    known: dict[str, Cut | None] = field(default_factory=dict)

    def cut(self, source: str) -> Cut | None:
        """The source's cut."""
        if source not in self.known:
            self.known[source] = newest_cut(self.store, LakePaths(self.lake, source))
        return self.known[source]


def _refresh_one(config: Config, view: ViewConfig, session: SparkSession, at: _Point) -> ViewReport:
    cuts = {source: at.cut(source) for source, _ in view.reads.values()}
    held = _why_held(view, cuts)
    if held is not None:
        return ViewReport(view.name, None, None, 0, 0, held=held)
    known = {source: cut for source, cut in cuts.items() if cut is not None}
    fit(session, view_row_bytes(view, known))
    opened = OpenedLake(session, config.lake, known)
    tables = {name: opened.table(source, table) for name, (source, table) in view.reads.items()}
    numbers = {source: cut.number for source, cut in known.items()}
    try:
        made = refresh_view(session, at.store, config.lake, view, tables=tables, sources=numbers, refresh=at.number)
    except (PySparkException, Py4JJavaError) as error:
        raise_unless_about_the_data(session, error)
        raise LakeError(
            f"view {view.name}: {view_path(config.lake, view.name)}",
            f"its table, or one that it reads, can't be read or written: {reason_of(error)}",
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


def held_views(config: Config, view: str | None) -> list[ViewReport]:
    """The views (or one) that a refresh would leave as they are, since a table that they read is held or not in the lake."""
    at = _Point(open_store(config.lake), config.lake, 0)
    reasons = {v.name: _why_held(v, {s: at.cut(s) for s, _ in v.reads.values()}) for v in _chosen(config, view)}
    return [ViewReport(name, None, None, 0, 0, held=held) for name, held in reasons.items() if held is not None]


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
