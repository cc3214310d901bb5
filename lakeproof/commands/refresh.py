"""Refreshes views, and replaces a view's definition in two steps: a preview that nobody sees, and applying it.

Computing, staging and committing do not belong here (`lakeproof.views`).

Applying is a refresh by another definition, under the same lock: a killed one leaves the view as it was, or replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Literal

from pyspark.sql import SparkSession

from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import Event, Report, counted, listed, silent
from lakeproof.lake.records.views.cuts import (
    ViewCut,
    newest_view_cut,
    newest_view_cut_number,
    one_refresh,
    other_versions,
    view_path,
)
from lakeproof.lake.records.views.definitions import (
    ViewDefinition,
    ViewPreview,
    newest_preview,
    read_definition,
    remove_previews,
    with_definition,
)
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark.failures import reading, reason_of, without_java
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.names import CycleNumber
from lakeproof.sql_catalog import name_views
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store
from lakeproof.views.applied import AppliedViews
from lakeproof.views.read_at import ViewInputs
from lakeproof.views.refresh import refresh_view
from lakeproof.views.refresh_point import Point
from lakeproof.views.replace import SAMPLE_ROWS_MAX, SampleRow, preview_view, staged_rows
from lakeproof.views.round import Round, ViewReport, chosen_views, faulty_views, inputs_at_newest, refresh_under


@dataclass(frozen=True, slots=True)
class ReplaceReport:
    """The changes that a definition would make to a view (`previewed`), or has made; `nothing`: it is applied already.

    `inserted` and `retracted` are rows; of a preview, those that differ by the columns that stay. `rewritten`, `added`,
    `dropped` and `retyped` as in a `ViewPreview`. `moved`: why a preview was computed again; `previewed`: the rows that it
    would have inserted and retracted.
    """

    view: str
    done: Literal["previewed", "applied", "taken_back", "nothing"]
    preview: str | None = None
    cut: CycleNumber | None = None
    delta_version: int | None = None
    inserted: int = 0
    retracted: int = 0
    rewritten: int | None = None
    added: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    retyped: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, CycleNumber] = field(default_factory=dict)
    samples: list[SampleRow] = field(default_factory=list)
    moved: str | None = None
    previewed: tuple[int, int] | None = None

    @property
    def changed_columns(self) -> list[tuple[str, str, str]]:
        """Return how each column changes, with its name and type."""
        kinds = {"added": self.added, "dropped": self.dropped, "retyped": self.retyped}
        return [(change, name, kind) for change, columns in kinds.items() for name, kind in columns.items()]


@without_java(lambda _config, view, *_, **__: f"view {view}" if isinstance(view, str) else "views")
def refresh(
    config: Config,
    view: str | Collection[str] | None,
    spark: SparkSession,
    report: Report = silent,
    *,
    whole: bool = False,
) -> list[ViewReport]:
    """Refresh the view of that name, those of these names, or every view; with them the views that these read.

    With `whole` each is computed by its whole query, whatever its cut says of it.

    A view over a table that is held or not in the lake yet stands still, and so does one over such a view. If
    not just one view is refreshed, so is one with a wrong definition (or one that is wrong since a column was renamed), a
    damaged document or table. Raises ConfigError for an unknown name, and for one view's wrong definition, LakeError for a
    damaged cut or table, TransientError if another process refreshes views of this lake.
    """
    store = open_store(config.location)
    with one_refresh(store) as lock:
        _report_begin(report, chosen_views(config, view))
        this = Round(lock, int(newest_view_cut_number(store)) + 1, whole=whole)
        return refresh_under(this, config, view, spark, report)


def views_standing_still(config: Config, view: str | Collection[str] | None) -> list[ViewReport]:
    """Return those of the views that a refresh would leave alone: they read what is held or not in the lake."""
    store = open_store(config.location)
    applied = AppliedViews.read(config, store)
    point, reports = Point(applied.config, store, 0), []
    for name in applied.in_order(chosen_views(config, view)):
        fault = applied.faults.get(name)
        why = point.why_still(applied.config.views[name]) if fault is None else str(fault)
        if why is not None:
            point.stop(name, why)
            reports.append(ViewReport(name, None, None, 0, 0, stands_still=why))
    return [*faulty_views(config, view, silent), *reports]


@without_java(lambda _config, view, *_, **__: f"view {view}")
def preview(config: Config, view: str, spark: AnySpark, report: Report = silent, samples: int = 5) -> ReplaceReport:
    """Compute the view by the configuration's definition at the newest cuts, and stage what differs; readers see nothing.

    Takes no lock: refreshes go on. Raises ConfigError for a definition that can't be computed or kept, LakeError for a
    damaged document or table, or a view that stands still.
    """
    if not 0 <= samples <= SAMPLE_ROWS_MAX:
        raise ConfigError("--samples", f"it is {samples}", f"give a number from 0 to {SAMPLE_ROWS_MAX}")
    file, store = config.view(view), open_store(config.location)
    on_demand = SparkOnDemand.of(spark)
    with at_work(on_demand, config.location):
        cut, session = _newest(store, file), on_demand.get().newSession()
        _report_begin(report, [view])
        with _readable(session, store, view):
            inputs = inputs_at_newest(config, file, session, store)
            staged, rows = preview_view(session, store, file, inputs, cut, samples)
    done = ReplaceReport(
        view=view,
        done="previewed",
        preview=staged.id,
        cut=cut.number,
        delta_version=cut.delta_version,
        inserted=staged.inserted,
        retracted=staged.retracted,
        rewritten=staged.rewritten,
        added=staged.added,
        dropped=staged.dropped,
        retyped=staged.retyped,
        sources=staged.sources,
        samples=rows,
    )
    report(_event(done, "would change: "))
    return done


@without_java(lambda _config, view, *_, **__: f"view {view}")
def apply_preview(
    config: Config, view: str, spark: AnySpark, report: Report = silent, name: str | None = None
) -> ReplaceReport:
    """Commit the view's newest preview, whose name is `name` if one is given; the definition is applied from then on.

    If the view, its sources or what computes it have moved on since, the difference is computed again at the newest cuts.
    Raises ConfigError if there is no preview of the configuration's definition, or another than `name`; and as `preview`.
    """
    file, store = config.view(view), open_store(config.location)
    on_demand = SparkOnDemand.of(spark)
    with at_work(on_demand, config.location), one_refresh(store) as lock:
        cut, staged_preview = _newest(store, file), newest_preview(store, view)
        if staged_preview is None and cut.definition_sha256 == ViewDefinition.of(file).sha256:
            return ReplaceReport(view, "nothing", cut=cut.number, delta_version=cut.delta_version, sources=cut.sources)
        chosen = _to_apply(file, staged_preview, name)
        session = on_demand.get().newSession()
        _report_begin(report, [view])
        with _readable(session, store, view):
            inputs = inputs_at_newest(config, file, session, store)
            moved = _why_moved(chosen, cut, inputs)
            staged = staged_rows(session, store, chosen) if moved is None else None
            if moved is None and staged is None:
                moved = "its staged rows are not all there"
            applied = refresh_view(session, store, file, with_fields(inputs, replaces=True, staged=staged), lock)
        if staged is not None and applied.strategy != "staged":
            moved = "its table was written by somebody else"
        # Only now: a killed run finds it again.
        remove_previews(store, view)
        name_views(config, on_demand, report)
    inserted, retracted = chosen.staged
    done = with_fields(
        _committed(applied, "applied"),
        preview=chosen.id,
        added=chosen.added,
        dropped=chosen.dropped,
        retyped=chosen.retyped,
        moved=moved,
        previewed=None
        if moved is None
        else (inserted, chosen.retracted if chosen.rewritten is not None else retracted),
    )
    report(_event(done, "applied: "))
    return done


@without_java(lambda _config, view, *_, **__: f"view {view}")
def take_back(config: Config, view: str, spark: AnySpark, report: Report = silent) -> ReplaceReport:
    """Compute the view by the definition that was applied before, at the newest cuts, and apply that.

    Raises ConfigError if none was, and as `preview`.
    """
    file, store = config.view(view), open_store(config.location)
    on_demand = SparkOnDemand.of(spark)
    with at_work(on_demand, config.location), one_refresh(store) as lock:
        cut = _newest(store, file)
        if cut.replaced_sha256 is None:
            reason = "no definition was applied before, or that was taken back already"
            raise ConfigError(f"view {view}", reason, f"edit {file.sql_file.name}, then run `lakeproof replace {view}`")
        before = with_definition(file, read_definition(store, view, cut.replaced_sha256))
        session = on_demand.get().newSession()
        _report_begin(report, [view])
        with _readable(session, store, view):
            inputs = inputs_at_newest(config, before, session, store)
            applied = refresh_view(session, store, before, with_fields(inputs, replaces=True, takes_back=True), lock)
        name_views(config, on_demand, report)
    done = _committed(applied, "taken_back")
    report(_event(done, "taken back: "))
    return done


def _report_begin(report: Report, views: Sequence[str]) -> None:
    """Report that views are computed now: minutes may pass before the first result."""
    if views:
        report(Event("view.begin", f"computing {counted(len(views), 'view')}: {listed(views)}", {"views": list(views)}))


def _newest(store: Store, view: ViewConfig) -> ViewCut:
    cut = newest_view_cut(store, view.name)
    if cut is None:
        remedy = f"run `lakeproof refresh {view.name}`, which makes it by the configuration's definition"
        raise LakeError(f"view {view.name}", "the lake does not have it yet, so there is nothing to replace", remedy)
    return cut


def _to_apply(view: ViewConfig, preview: ViewPreview | None, name: str | None) -> ViewPreview:
    again = f"run `lakeproof replace {view.name}`, look at it, then apply it"
    if preview is None:
        raise ConfigError(f"view {view.name}", "there is no preview to apply", again)
    if name not in {None, preview.id}:
        raise ConfigError(f"view {view.name}: preview {str(name)[:80]}", f"the newest is {preview.id}", again)
    if preview.definition_sha256 != ViewDefinition.of(view).sha256:
        reason = "its definition was edited again since the preview"
        raise ConfigError(f"view {view.name}: preview {preview.id}", reason, again)
    return preview


def _why_moved(preview: ViewPreview, cut: ViewCut, inputs: ViewInputs) -> str | None:
    """Return why a preview's rows are not what would be committed now; None if they are."""
    if preview.cut != cut.number:
        return f"the view is at cut {cut.number}, the preview was made at {preview.cut}"
    others = [
        f"{source} is at cut {number}, the preview read {preview.sources.get(source)}"
        for source, number in sorted(inputs.cuts.items())
        if preview.sources.get(source) != number
    ]
    others += _other_versions("view", preview.views, inputs.point.views)
    others += _other_versions("external table", preview.external, inputs.point.external)
    return "; ".join(others) or other_versions(preview.engine)


def _other_versions(kind: str, previewed: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return [f"{kind} {name} has another version since" for name in sorted(now) if previewed.get(name) != now[name]]


def _committed(cut: ViewCut, done: Literal["applied", "taken_back"]) -> ReplaceReport:
    return ReplaceReport(
        view=cut.view,
        done=done,
        cut=cut.number,
        delta_version=cut.delta_version,
        inserted=cut.inserted,
        retracted=cut.retracted,
        sources=cut.sources,
    )


@contextmanager
def _readable(session: SparkSession, store: Store, view: str) -> Iterator[None]:
    """Name the view in an error of Spark's about a table that is read or written in the block."""
    with reading(session) as attempt:
        yield
    if attempt.error is not None:
        raise LakeError(
            f"view {view}: {view_path(store, view)}",
            f"its table, or a table that it reads, can't be read or written: {reason_of(attempt.error)}",
            "if the damaged table is the view's own, move that folder away and refresh the view: that creates it again",
        ) from attempt.error


def _event(done: ReplaceReport, verb: str) -> Event:
    moved = "" if done.moved is None else f" (computed again: {done.moved})"
    text = f"view {done.view}: {verb}{counted(done.inserted, 'row')} inserted, {done.retracted:,} retracted{moved}"
    return Event(
        f"view.{done.done}",
        text,
        {
            "view": done.view,
            "preview": done.preview,
            "cut": done.cut,
            "inserted_rows": done.inserted,
            "retracted_rows": done.retracted,
            "rewritten_rows": done.rewritten,
            "changed_columns": sorted({name for _, name, _ in done.changed_columns}),
            "moved": done.moved,
        },
    )
