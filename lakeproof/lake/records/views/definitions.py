"""The views' definitions: the query that a view's rows are the answer of, kept in the lake; a cut names it by its hash.

Computing a view is in `lakeproof.views`; FORMAT.md has the document's fields.

The configuration's file is a wish. A refresh uses the definition in the lake, so an edit of the file changes nothing
until it is applied (`lakeproof replace`), and a view of a cut can always be computed again. A definition never changes: its
key is its hash, and a cut is put after the definition that it names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakeproof.config.model import ViewConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.errors import ConfigError, LakeError
from lakeproof.field_types import TableField
from lakeproof.lake.records.views.cuts import ViewCut, newest_view_cut
from lakeproof.storage.document import Document, Part, canonical
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import AlreadyExistsError, Store

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
