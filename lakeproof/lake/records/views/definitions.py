"""The views' definitions: the query that a view's rows are the answer of, kept in the lake; and previews of other ones.

Computing a view, and computing and applying a preview, is in `lakeproof.views`; FORMAT.md has the documents' fields.

The configuration's file is a wish. A refresh uses the definition in the lake, so an edit of the file changes nothing
until it is applied (`lakeproof replace`), and a view of a cut can always be computed again. A definition never changes: its
key is its hash, a cut names it by that, and is put after it.

A preview is what a view would be by another definition, staged in the lake where no reader looks: a folder with the staged
rows, and a document that is put when they are complete. Its name begins with its time. A folder without a document is a
preview that was killed. Both are removed after `PREVIEW_KEPT_S`, by maintenance.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Literal

from lakeproof.config.model import ViewConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.errors import ConfigError, LakeError
from lakeproof.field_types import Count, CycleField, Sha256, TableField
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewCut, ViewVersion, newest_view_cut
from lakeproof.storage.document import Document, Part, canonical
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, Store
from lakeproof.storage.times import now_text

# And the whole lines of comment behind it.
_LAST_SEMICOLON = re.compile(r";\s*(\n[ \t]*(--[^\n]*)?)*\Z")


@dataclass(frozen=True, slots=True)
class ReadTable(Part):
    """The current table that a name in a view's SQL stands for."""

    source: str
    table: TableField


@dataclass(frozen=True, slots=True)
class ReadExternal(Part):
    """The external table that a name in a view's SQL stands for, as `lakeproof.config.section.external_table` has it."""

    kind: Literal["delta", "catalog"]
    place: str


@dataclass(frozen=True, slots=True)
class ViewDefinition(Document):
    """A view's query, and what the names in it stand for: tables (`reads`), other views, external tables."""

    FORMAT = "lakeproof.viewdefinition/1"

    view: str
    sql: str
    reads: Mapping[str, ReadTable]
    views: Mapping[str, str] = field(default_factory=dict)
    external: Mapping[str, ReadExternal] = field(default_factory=dict)

    @classmethod
    def of(cls, view: ViewConfig) -> ViewDefinition:
        """Return what a view's configuration says; raises ConfigError as `read_sql`."""
        reads = {name: ReadTable(source, table) for name, (source, table) in view.reads.items()}
        external = {name: ReadExternal(table.kind, table.place) for name, table in view.external.items()}
        return cls(view.name, read_sql(view), reads, dict(view.views), external)

    @property
    def sha256(self) -> str:
        """64 hexadecimal digits over the SQL and over what its names are bound to."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()


class AppliedView(ViewConfig):
    """A view of the configuration with the definition that the lake has in place of the file's."""

    text: str

    def sql(self) -> str:
        """Return the query that is applied."""
        return self.text


def read_sql(view: ViewConfig) -> str:
    """Return the view's SQL without a last semicolon; raises ConfigError if it can't be read or is empty."""
    try:
        text = _LAST_SEMICOLON.sub("", view.sql()).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"view {view.name}: {view.sql_file}", reason, "correct the view's sql_file") from None
    if not text:
        raise ConfigError(f"view {view.name}: {view.sql_file}", "the file has no SQL", "correct the view's SQL file")
    return text


def put_definition(store: Store, definition: ViewDefinition) -> None:
    """Keep a definition in the lake, if it is not there yet."""
    try:
        store.put_if_absent(LakePaths.view_definition(definition.view, definition.sha256), definition.to_bytes())
    except AlreadyExistsError:
        return


def read_definition(store: Store, view: str, sha256: str) -> ViewDefinition:
    """Return a definition; raises LakeError if it is missing, damaged or another one."""
    key = LakePaths.view_definition(view, sha256)
    definition = ViewDefinition.read(store, key)
    if definition is None:
        raise LakeError(store.url(key), f"the definition that view {view} was computed by is gone", _restore(view))
    if definition.sha256 != sha256:
        raise LakeError(store.url(key), "it has another definition inside than its name says", _restore(view))
    return definition


def applied_view(store: Store, view: ViewConfig, newest: ViewCut | None = None) -> ViewConfig:
    """Return the view as the lake has it; as the configuration has it if the lake does not have it yet.

    `newest` is its newest cut, if the caller has read it. Raises LakeError if a document is missing or damaged.
    """
    cut = newest or newest_view_cut(store, view.name)
    return view if cut is None else with_definition(view, read_definition(store, view.name, cut.definition_sha256))


def with_definition(view: ViewConfig, definition: ViewDefinition) -> ViewConfig:
    """Return the view with this definition in place of its own."""
    reads = {name: (read.source, read.table) for name, read in definition.reads.items()}
    external = {name: ExternalTable(read.kind, read.place) for name, read in definition.external.items()}
    bound = {"reads": reads, "views": dict(definition.views), "external": external}
    return AppliedView(**{**dict(view), **bound, "text": definition.sql})


def why_not_applied(view: ViewConfig, cut: ViewCut | None) -> str | None:
    """Return that the configuration has another definition than the view's newest cut, and what to do; None if not."""
    if cut is None:
        return None
    try:
        edited = ViewDefinition.of(view).sha256 != cut.definition_sha256
    except ConfigError as error:
        return f"{error.thing}: {error.reason}; the applied query goes on"
    return f"edited, not applied: see what would change with `lakeproof replace {view.name}`" if edited else None


def _restore(view: str) -> str:
    return (
        f"restore it from a backup, or run `lakeproof replace {view}`, which computes the view by the configuration's"
    )


PREVIEW_KEPT_S = 7 * 86_400.0
_TIME = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True, slots=True)
class ViewPreview(Document):
    """What applying a definition to a view would do; `sources`, `views` and `external` as in the view's cut.

    `cut` and `delta_version`: those of the view that it was made for. `inserted` and `retracted` are rows that differ, by
    the columns that stay; if columns change, all `rewritten` rows are written anew. `added` and `dropped`: column → type;
    `retyped`: column → `old → new`. `staged`: the staged rows to insert, and to delete.
    """

    FORMAT = "lakeproof.viewpreview/1"
    REMEDY = "make a new preview with `lakeproof replace`"

    id: str
    view: str
    definition_sha256: Sha256
    cut: CycleField
    delta_version: Count
    sources: Mapping[str, CycleField]
    inserted: Count
    retracted: Count
    rewritten: Count | None
    added: Mapping[str, str]
    dropped: Mapping[str, str]
    retyped: Mapping[str, str]
    staged: tuple[Count, Count]
    engine: Mapping[str, str]
    views: Mapping[str, ViewVersion] = field(default_factory=dict)
    external: Mapping[str, ExternalVersion] = field(default_factory=dict)
    created_at: str = field(default_factory=now_text)

    @property
    def changes_columns(self) -> bool:
        """True if the view's columns would be others."""
        return bool(self.added or self.dropped or self.retyped)


def new_preview_id() -> str:
    """Return the name of a preview that begins now."""
    return f"{datetime.now(timezone.utc).strftime(_TIME)}-{uuid.uuid4().hex[:6]}"


def put_preview(store: Store, preview: ViewPreview) -> None:
    """Write a preview's document: its staged rows are complete."""
    store.put_if_absent(LakePaths.view_preview_document(preview.view, preview.id), preview.to_bytes())


def newest_preview(store: Store, view: str) -> ViewPreview | None:
    """Return the view's newest preview that is complete; raises LakeError if its document is damaged."""
    for name in sorted(store.folders(LakePaths.view_previews(view)), reverse=True):
        preview = ViewPreview.read(store, LakePaths.view_preview_document(view, name))
        if preview is not None:
            return preview
    return None


def remove_previews(store: Store, view: str) -> None:
    """Remove a view's previews."""
    for name in store.folders(LakePaths.view_previews(view)):
        store.delete_all(LakePaths.view_preview(view, name))


def old_previews(store: Store, now: datetime) -> Iterator[tuple[str, int, int]]:
    """Yield each preview of any view that began `PREVIEW_KEPT_S` ago: its folder, how many files, and their bytes."""
    oldest = (now - timedelta(seconds=PREVIEW_KEPT_S)).strftime(_TIME)
    for view in store.folders(LakePaths.all_view_previews()):
        for name in store.folders(LakePaths.view_previews(view)):
            if not name[:8].isdecimal():
                raise LakeError(store.url(LakePaths.view_preview(view, name)), "it is no preview", "move it away")
            if name < oldest:
                folder = LakePaths.view_preview(view, name)
                files = list(store.entries(folder))
                yield folder, len(files), sum(file.bytes for file in files)
