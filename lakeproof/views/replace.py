"""A view by another definition: computed without being seen, staged beside the view, and read again to be committed.

Committing it belongs to `refresh`, choosing the definition and the cuts to `lakeproof.commands.refresh`.

Staged rows are Parquet in a folder that no reader of the view knows. They are the correction of the view's table at one
version; if columns change they are all of the view's rows, since each is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.config.model import ViewConfig
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import DUP, HIDDEN_PREFIX, KEY, SCRATCH_PREFIX
from lakeproof.lake.delta.versions import read_at, read_view
from lakeproof.lake.records.views.cuts import ViewCut, engine_versions, view_path
from lakeproof.lake.records.views.definitions import (
    ViewDefinition,
    ViewPreview,
    new_preview_id,
    put_definition,
    put_preview,
)
from lakeproof.lake.rows.columns import col, digest_of_columns
from lakeproof.lake.rows.correction import correct
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.views.difference import ViewTarget, differing
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.read_at import StagedRows, ViewInputs

# A sample shows this many columns, and this many characters of a value.
SAMPLE_COLUMNS, SAMPLE_CHARACTERS = 6, 60
SAMPLE_ROWS_MAX = 100


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row to come or to go, by its first columns; long values are cut."""

    comes: bool
    values: Mapping[str, str | None]


@dataclass(slots=True)
class _Columns:
    """The columns that a definition changes: `stay` have the same name and type."""

    stay: list[str] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    retyped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, desired: DataFrame, stored: DataFrame) -> _Columns:
        now, then = _types(desired), _types(stored)
        columns = cls(added={n: t for n, t in now.items() if n not in then})
        for name, old in then.items():
            if name not in now:
                columns.dropped[name] = old
            elif now[name] != old:
                columns.retyped[name] = f"{old} → {now[name]}"
            else:
                columns.stay.append(name)
        return columns

    @property
    def change(self) -> bool:
        return bool(self.added or self.dropped or self.retyped)


def preview_view(  # noqa: PLR0917  the view by its new definition, what it reads, its newest cut
    session: SparkSession, store: Store, view: ViewConfig, inputs: ViewInputs, cut: ViewCut, samples: int
) -> tuple[ViewPreview, list[SampleRow]]:
    """Stage what the definition in `view` makes of the view's table at its newest cut.

    Earlier previews of it stay: one of them may be about to be committed.
    `session` is the caller's own. Returns up to `samples` rows to come, and as many to go. Raises as `refresh_view`.
    """
    definition, name = ViewDefinition.of(view), new_preview_id()
    target = ViewTarget(session, view, view_path(store, view.name), cut.delta_version, replaces=True)
    with differing(target, inputs.tables, may_place=False) as (desired, difference):
        stored = read_view(session, store, cut)
        columns = _Columns.of(desired, stored)
        staged = _stage(store, view.name, name, difference)
        compared = _by_what_stays(desired, stored, columns) if columns.change else nullcontext(_as_it_is(difference))
        with compared as shown:
            rows = [
                *_sampled(shown.insertions, samples, comes=True),
                *_sampled(shown.retractions, samples, comes=False),
            ]
    preview = ViewPreview(
        id=name,
        view=view.name,
        definition_sha256=definition.sha256,
        cut=cut.number,
        delta_version=cut.delta_version,
        sources=inputs.cuts,
        views=inputs.point.views,
        external=inputs.point.external,
        inserted=shown.inserted,
        retracted=shown.retracted,
        rewritten=difference.inserted if difference.truncate else None,
        added=columns.added,
        dropped=columns.dropped,
        retyped=columns.retyped,
        staged=staged,
        engine=engine_versions(),
    )
    failpoint("view.after_staged")
    put_definition(store, definition)
    put_preview(store, preview)
    return preview, rows


def staged_rows(session: SparkSession, store: Store, preview: ViewPreview) -> StagedRows | None:
    """Return a preview's rows as `refresh_view` commits them, None if they are not all there."""
    inserted, retracted = preview.staged
    whole = preview.rewritten is not None
    insertions = _read(session, store, preview, "insertions") if inserted or whole else None
    retractions = _read(session, store, preview, "retractions") if retracted else None
    counts = [0 if rows is None else rows.count() for rows in (insertions, retractions)]
    if counts != [inserted, retracted] or (whole and insertions is None):
        return None
    if whole:
        path = view_path(store, preview.view)
        retracted = read_at(session, path, preview.delta_version).count()
    change = ViewCorrection(
        retractions, insertions, retracted, inserted, truncate=whole, new_columns=preview.changes_columns
    )
    return StagedRows(preview.delta_version, change, preview.created_at)


def _stage(store: Store, view: str, name: str, difference: ViewCorrection) -> tuple[int, int]:
    """Write the rows of a correction, and return their numbers: to insert, and to delete."""
    insertions = None if difference.insertions is None else difference.insertions.drop(DUP)
    for part, rows in (("insertions", insertions), ("retractions", difference.retractions)):
        if rows is not None:
            rows.write.parquet(_place(store, view, name, part))
    return difference.inserted, 0 if difference.retractions is None else difference.retracted


def _read(session: SparkSession, store: Store, preview: ViewPreview, part: str) -> DataFrame | None:
    folder = f"{LakePaths.view_preview(preview.view, preview.id)}/{part}"
    written = any(file.key.endswith(".parquet") for file in store.entries(folder))
    return session.read.parquet(store.url(folder)) if written else None


def _as_it_is(difference: ViewCorrection) -> ViewCorrection:
    """Return the same with the whole rows that go."""
    return replace(difference, retractions=None if difference.correction is None else difference.correction.retractions)


@contextmanager
def _by_what_stays(desired: DataFrame, stored: DataFrame, columns: _Columns) -> Iterator[ViewCorrection]:
    """Compare by the columns that stay alone, for the block: a row that only gets a column more does not differ."""
    if not columns.stay:
        yield ViewCorrection(stored, desired, stored.count(), desired.count())
        return
    sides = [rows.select(*map(col, columns.stay)) for rows in (desired, stored)]
    now, then = (rows.withColumn(KEY, digest_of_columns(rows, columns.stay)) for rows in sides)
    correction = correct(now, then, KEY)
    try:
        retracted, inserted = correction.counts()
        yield ViewCorrection(correction.retractions, correction.insertions, retracted, inserted)
    finally:
        correction.release()


def _sampled(rows: DataFrame | None, number: int, *, comes: bool) -> list[SampleRow]:
    if rows is None or not number:
        return []
    hidden = (HIDDEN_PREFIX, SCRATCH_PREFIX)
    shown = [f for f in rows.schema.fields if not f.name.startswith(hidden)][:SAMPLE_COLUMNS]
    texts = [F.hex(col(f.name)) if isinstance(f.dataType, T.BinaryType) else col(f.name).cast("string") for f in shown]
    cut = [F.substring(text, 1, SAMPLE_CHARACTERS).alias(f"c{i}") for i, text in enumerate(texts)]
    first = rows.select(*cut).orderBy(*(f"c{i}" for i in range(len(cut)))).limit(number).collect()
    return [SampleRow(comes, {f.name: value for f, value in zip(shown, row, strict=True)}) for row in first]


def _types(rows: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields if not f.name.startswith(HIDDEN_PREFIX)}


def _place(store: Store, view: str, name: str, part: str) -> str:
    return store.url(f"{LakePaths.view_preview(view, name)}/{part}")
