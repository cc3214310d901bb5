"""Reads `lakeproof.yaml` into a `Config`, or names every mistake in it with its line.

`model` has values and limits, `document` the YAML. The only environment variable read here is LAKEPROOF_CONFIG, and no
server or lake is touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import ValidationError

from lakeproof.config.document import YamlDocument, read_document
from lakeproof.config.location import StorageConfig, is_secret_key
from lakeproof.config.mistakes import ConfigFileError, KeyPath, Mistake, dotted, explain, hint, unknown_key
from lakeproof.config.model import Config, SourceConfig, TableConfig, ViewConfig
from lakeproof.config.secret import Dsn, EnvSecret
from lakeproof.config.section import Model
from lakeproof.config.section.alerts import SECRETS
from lakeproof.config.section.expectations import read_expectations
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.config.section.publication import publication_mistakes, schema_patterns
from lakeproof.config.section.sql_catalog import CatalogConfig
from lakeproof.config.sections import (
    is_inside,
    lake_address,
    read_dsn,
    read_groups,
    read_reads,
    read_secret,
    read_sql_file,
)
from lakeproof.config.table_names import Selection, TablePattern, parse_selected, parse_table, table_text
from lakeproof.config.view_graph import checked_views
from lakeproof.errors import ConfigError
from lakeproof.names import TableName

VARIABLE = "LAKEPROOF_CONFIG"
DEFAULT_NAME = "lakeproof.yaml"

# Names that folders of the lake already have.
_RESERVED_VIEWS = ("cuts", "definitions", "previews")
_RESERVED_SOURCES = {"views": "the views'", "groups": "the groups'"}

_M = TypeVar("_M", bound=Model)
_T = TypeVar("_T")


def find(path: Path | None) -> Path:
    """Return the file to read: `path`, else LAKEPROOF_CONFIG, else `./lakeproof.yaml`. Raises ConfigError if none is."""
    file = configured_path(path)
    if file.is_file():
        return file
    reason = "there is no such file"
    if path is None and not os.environ.get(VARIABLE):
        reason = "there is no such file in this folder, and none was named"
    raise ConfigError(str(file), reason, f"name the configuration with -c FILE or {VARIABLE}")


def configured_path(path: Path | None) -> Path:
    """Return the file that `find` looks for, whether or not it exists."""
    return path or Path(os.environ.get(VARIABLE) or DEFAULT_NAME)


def load(path: Path | None = None, *, set_views_aside: bool = False) -> Config:
    """Read and check the configuration. Raises `ConfigFileError` with every mistake, or ConfigError if there is no file.

    With `set_views_aside` a view with mistakes is one of the result's `faulty_views`, and no reason to refuse the file.
    """
    file = find(path)
    try:
        document = read_document(file)
    except OSError as error:
        raise ConfigError(
            str(file), f"can't be read ({error.strerror})", "see to the file and its permissions"
        ) from None
    config = None if document.mistakes else _Reader(document, file.absolute()).config(set_views_aside=set_views_aside)
    if config is None or document.mistakes:
        raise ConfigFileError(str(file), document.mistakes)
    return config


class _Reader:
    """Turns one document into a `Config`; every mistake is added to the document, and reading continues."""

    def __init__(self, document: YamlDocument, file: Path) -> None:
        self._document = document
        self._file = file
        # None for a source whose `tables` can't be read, or that selects whatever is published.
        self._selections: dict[str, Selection | None] = {}

    def config(self, *, set_views_aside: bool) -> Config | None:
        root = dict(self._document.root)
        self._refuse_unknown(root, (), Config, hide=("path", "faulty_views"))
        lake = self._try(("lake",), lambda: lake_address(root.get("lake"), self._file.parent))
        sources = {n: self._source(n, v) for n, v in self._mapping(root.get("sources"), ("sources",)).items()}
        if not sources:
            self._document.add(("sources",), "must name at least one source")
        self._shared_slots(sources)
        self._archives_in_lake(sources, lake)
        views = {n: self._view(n, v, lake) for n, v in self._mapping(root.get("views"), ("views",)).items()}
        kept, faulty = checked_views(self._document, views, str(self._file), aside=set_views_aside)
        groups = read_groups(self._document, root.get("groups"), sources)
        values = self._only(root, Config, but=("path", "faulty_views", "lake", "sources", "views", "groups"))
        values |= {"path": self._file, "lake": lake or "", "sources": {}, "storage": self._storage(root.get("storage"))}
        values["alerts"] = self._alerts(root.get("alerts"))
        values["spark"] = self._with_secrets(self._mapping(root.get("spark"), ("spark",)), ("spark",), "secret")
        config = self._validate(Config, values, ())
        if config is not None and config.catalog is not None:
            self._refuse_shared_schema(config.catalog, list(sources))
        if config is None or self._document.mistakes:
            return None
        return config.model_copy(update={"sources": sources, "views": kept, "groups": groups, "faulty_views": faulty})

    def _refuse_shared_schema(self, catalog: CatalogConfig, sources: list[str]) -> None:
        schema = catalog.taken_twice(sources)
        if schema is not None:
            text = f"{schema} would be the schema of two; write {{source}} in the names, and other names for the layers"
            self._document.add(("catalog",), text)

    def _storage(self, value: object) -> dict[str, object]:
        """Return the section without keys that are a secret's, which are refused here."""
        section = self._mapping(value, ("storage",))
        for key in section:
            if key not in StorageConfig.model_fields and is_secret_key(key):
                text = "would be a secret, which does not stand in this file; the environment, a profile or a role gives it"
                self._document.add(("storage", key), text)
        return {key: entry for key, entry in section.items() if not is_secret_key(key)}

    def _alerts(self, value: object) -> dict[str, object]:
        section = self._mapping(value, ("alerts",))
        ways = {way: (section.get(way), keys) for way, keys in SECRETS.items()}
        return section | {
            way: self._with_secrets(entry, ("alerts", way), *keys)
            for way, (entry, keys) in ways.items()
            if isinstance(entry, dict)
        }

    def _with_secrets(self, section: dict[str, object], path: KeyPath, *keys: str) -> dict[str, object]:
        """Return a section with what these keys refer to as secrets."""
        folder, secrets = self._file.parent, dict[str, object]()
        for key in keys:
            value, place = section.get(key), dotted((*path, key))
            if value is not None:
                secret = self._try((*path, key), lambda v=value, p=place: read_secret(v, p, folder))  # type: ignore[misc]  # a default binds the loop's value
                # What is no reference was refused just now: its model has nothing to add.
                secrets[key] = secret or EnvSecret("REFUSED", place)
        return section | secrets

    def _source(self, name: str, value: object) -> SourceConfig | None:
        path = ("sources", name)
        section = self._with_secrets(self._mapping(value, path), path, "password")
        self._refuse_unknown(section, path, SourceConfig, hide=("name", "patterns"), also=("password",))
        if name in _RESERVED_SOURCES:
            text = f"is taken by {_RESERVED_SOURCES[name]} folder in the lake; give the source another name"
            self._document.add(path, text)
        dsn = self._try((*path, "dsn"), lambda: read_dsn(section, ".".join(path), self._file.parent))
        listed = self._selection(name, section)
        values = {
            "publication": f"lakeproof_{name}",
            "slot": f"lakeproof_{name}",
            **self._only(section, SourceConfig, but=("name", "dsn", "tables", "patterns", "exclude", "daily", "table")),
            "daily": tuple(self._table_list(section.get("daily"), (*path, "daily")) or ()),
            "name": name,
            "dsn": dsn or Dsn(""),
            **listed,
            "table": self._table_sections(name, section.get("table")),
        }
        config = self._validate(SourceConfig, values, path)
        for keys, text in () if config is None else publication_mistakes(config.schemas, config.exclude, config.table):
            self._document.add((*path, *keys), text)
        return None if config is None else self._with_archive(config, (*path, "retention", "archive"))

    def _with_archive(self, config: SourceConfig, path: KeyPath) -> SourceConfig:
        """Make the archive's folder absolute: a compaction may run in any folder."""
        archive = config.retention.archive
        if archive is None:
            return config
        place = self._try(path, lambda: lake_address(archive, self._file.parent))
        return config.model_copy(update={"retention": config.retention.model_copy(update={"archive": place})})

    def _selection(self, source: str, section: dict[str, object]) -> dict[str, object]:
        """Return the selection that `tables` and `exclude` make."""
        path = ("sources", source)
        listed = self._table_list(section.get("tables"), (*path, "tables"))
        out = self._table_list(section.get("exclude"), (*path, "exclude"))
        selection = Selection(
            tables=tuple(entry for entry in listed or () if isinstance(entry, TableName)),
            patterns=(
                *(entry for entry in listed or () if isinstance(entry, TablePattern)),
                *schema_patterns(section.get("schemas")),
            ),
            exclude=tuple(out or ()),
        )
        self._selections[source] = selection if listed is not None and selection else None
        for i, entry in enumerate(out or ()):
            for mistake in selection.mistakes(entry):
                self._document.add((*path, "exclude", i), mistake)
        return {"tables": selection.tables, "patterns": selection.patterns, "exclude": selection.exclude}

    def _table_list(self, value: object, path: KeyPath) -> list[TableName | TablePattern] | None:
        if value is None:
            return []
        if not isinstance(value, list):
            self._document.add(path, "must be a list of tables")
            return None
        names = [self._try((*path, i), lambda t=text: _selected(t)) for i, text in enumerate(value)]  # type: ignore[misc]  # a default binds the loop's value
        return None if None in names else [n for n in names if n is not None]

    def _table_sections(self, source: str, value: object) -> dict[TableName, TableConfig]:
        path = ("sources", source, "table")
        result: dict[TableName, TableConfig] = {}
        for text, section in self._mapping(value, path).items():
            here = (*path, text)
            name = self._try(here, lambda t=text: _table(t))  # type: ignore[misc]  # a default binds the loop's value
            values = dict(self._mapping(section, here))
            if "expectations" in values:
                given, place = values["expectations"], (*here, "expectations")
                values["expectations"] = self._try(place, lambda g=given: read_expectations(g, self._file.parent)) or ()  # type: ignore[misc]  # a default binds the loop's value
            config = self._validate(TableConfig, values, here)
            if name is None or config is None:
                continue
            if name in result:
                self._document.add(here, "is the same table as an earlier key")
            self._listed(source, name, here)
            result[name] = config
        return result

    def _view(self, name: str, value: object, lake: str | None) -> ViewConfig | None:
        path = ("views", name)
        section = self._mapping(value, path)
        split = ("name", "sql_file", "views", "external")
        self._refuse_unknown(section, path, ViewConfig, hide=split, also=("sql",))
        if name in _RESERVED_VIEWS:
            self._document.add(path, f"is taken by the views' {name} in the lake; give the view another name")
        sql_file = self._try((*path, "sql"), lambda: read_sql_file(section.get("sql"), self._file.parent))
        bound = self._reads(section.get("reads"), (*path, "reads"), lake)
        values = {
            **self._only(section, ViewConfig, but=(*split, "reads")),
            "name": name,
            "sql_file": sql_file or Path(),
            "reads": {alias: to for alias, to in bound.items() if isinstance(to, tuple)},
            "views": {alias: to for alias, to in bound.items() if isinstance(to, str)},
            "external": {alias: to for alias, to in bound.items() if isinstance(to, ExternalTable)},
        }
        return self._validate(ViewConfig, values, path)

    def _reads(
        self, value: object, path: KeyPath, lake: str | None
    ) -> dict[str, tuple[str, TableName] | str | ExternalTable]:
        entries = self._mapping(value, path)
        if not entries:
            self._document.add(path, "must bind at least one name: {orders: shop/shop.orders}")
        bindings: dict[str, tuple[str, TableName] | str | ExternalTable] = {}
        for alias, entry in entries.items():
            here = (*path, alias)
            bound = self._try(here, lambda a=alias, e=entry: read_reads(a, e, self._file.parent))  # type: ignore[misc]  # a default binds the loop's value
            if bound is None:
                continue
            if alias.lower() in {other.lower() for other in bindings}:
                self._document.add(here, "differs from an earlier name in case only, which Spark can't tell apart")
            if isinstance(bound, tuple):
                self._listed(*bound, here)
            elif isinstance(bound, ExternalTable) and bound.kind == "delta" and lake and is_inside(bound.place, lake):
                self._document.add(here, "is in the lake; name the source's table, or {view: name}")
            bindings[alias] = bound
        return bindings

    def _listed(self, source: str, table: TableName, path: KeyPath) -> None:
        if source not in self._selections:
            self._document.add(path, f"reads from {source}, which is no source; {hint(source, self._selections)}")
        selection = self._selections.get(source)
        if selection is not None and not selection.selected(table):
            self._document.add(path, f"{table_text(table)} is not among sources.{source}.tables")

    def _shared_slots(self, sources: dict[str, SourceConfig | None]) -> None:
        # A slot's name is unique in a server, not in a database: two sources that share it would take turns losing changes.
        owners: dict[tuple[object, str], str] = {}
        for name, source in sources.items():
            if source is None or not isinstance(source.dsn, Dsn) or source.dsn.server is None:
                continue
            first = owners.setdefault((source.dsn.server, source.slot), name)
            if first != name:
                text = f"{source.slot} is the slot of sources.{first} on the same server; each source needs its own"
                self._document.add(("sources", name, "slot"), text)

    def _archives_in_lake(self, sources: dict[str, SourceConfig | None], lake: str | None) -> None:
        # There an archive's files lie beside history's, and maintenance removes them as files that no cut names.
        for name, source in sources.items():
            archive = None if source is None else source.retention.archive
            if lake is not None and archive is not None and is_inside(archive, lake):
                text = "is in the lake, whose maintenance would remove it; name a folder outside of it"
                self._document.add(("sources", name, "retention", "archive"), text)

    def _mapping(self, value: object, path: KeyPath) -> dict[str, object]:
        if value is None or isinstance(value, dict):
            return value or {}
        self._document.add(path, "must be a mapping (key: value)")
        return {}

    def _only(self, section: dict[str, object], model: type[Model], but: tuple[str, ...]) -> dict[str, object]:
        """Return the keys of `section` that `model` takes as they are; an empty section (`drain:`) gets the defaults."""
        fields = model.model_fields.keys() - set(but)
        return {k: v for k, v in section.items() if k in fields and (v is not None or _section(model, k) is None)}

    def _refuse_unknown(
        self,
        section: dict[str, object],
        path: KeyPath,
        model: type[Model],
        hide: tuple[str, ...],
        also: tuple[str, ...] = (),
    ) -> None:
        keys = (model.model_fields.keys() - set(hide)) | set(also)
        for key in section.keys() - keys:
            self._document.add((*path, key), unknown_key(key, keys))

    def _validate(self, model: type[_M], values: dict[str, object], path: KeyPath) -> _M | None:
        try:
            return model.model_validate(values)
        except ValidationError as errors:
            for error in errors.errors(include_url=False, include_input=False):
                loc = tuple(part for part in error["loc"] if part != "[key]")
                place = path if loc == ("name",) else (*path, *loc)
                self._document.add(place, explain(error, _fields(model, loc[:-1])))
            return None

    def _try(self, path: KeyPath, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except ValueError as error:
            self._document.add(path, str(error))
            return None


def _table(text: object) -> TableName:
    if isinstance(text, str):
        return parse_table(text)
    raise ValueError("must be a table: schema.table")


def _selected(text: object) -> TableName | TablePattern:
    if isinstance(text, str):
        return parse_selected(text)
    raise ValueError("must be a table or a pattern: schema.table or schema.*")


def _section(model: type[Model], key: str) -> type[Model] | None:
    """Return the model of the section under a key; None for a single value."""
    kind = model.model_fields[key].annotation
    kinds = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, Model)]
    return kinds[0] if kinds else None


def _fields(model: type[Model], loc: KeyPath) -> list[str]:
    """Return the keys of the section that `loc` leads to from `model`."""
    for part in loc:
        section = _section(model, part) if isinstance(part, str) and part in model.model_fields else None
        if section is None:
            break
        model = section
    return list(model.model_fields)


__all__ = ["ConfigFileError", "Mistake", "find", "load"]
