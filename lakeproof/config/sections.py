"""Reads values that need more than a type: the lake, a source's dsn, a view's SQL and the tables that it reads, the groups.

A function of a single value takes it as the YAML has it and raises ValueError, as a phrase, if it is wrong; `load` adds the
line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from lakeproof.config.document import YamlDocument
from lakeproof.config.location import URL, ObjectPlace, absolute, absolute_place
from lakeproof.config.mistakes import hint
from lakeproof.config.model import SourceConfig
from lakeproof.config.secret import Dsn, EnvSecret, FileSecret, Secret, check_conninfo
from lakeproof.config.section.external_table import ExternalTable, read_external
from lakeproof.config.table_names import parse_table
from lakeproof.config.values import NAME_PATTERN
from lakeproof.names import TableName

_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SQL_BYTES_MAX = 1 << 20
Sources: TypeAlias = Mapping[str, SourceConfig | None]


def lake_address(value: object, folder: Path) -> str:
    """Return the lake as an absolute path, or as its URL."""
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise ValueError("must be a folder, a file:// URL, or a place in an object store")
    return absolute_place(value, folder)


def is_inside(place: str, lake: str) -> bool:
    """True if `place` is the lake's folder or in it, symbolic links followed; both as `lake_address` returns them."""
    objects = [ObjectPlace.parse(p) for p in (place, lake)]
    if objects[0] is not None and objects[1] is not None:
        return f"{objects[0]}/".startswith(f"{objects[1]}/")
    if any(objects):
        return False
    inner, outer = (os.path.realpath(unquote(urlsplit(p).path) if URL.match(p) else p) for p in (place, lake))
    return Path(inner).is_relative_to(outer)


def read_dsn(section: dict[str, object], place: str, folder: Path) -> Dsn:
    """Return a source's `dsn` with its `password`, which is a secret by now; no secret is read."""
    dsn, password = section.get("dsn"), section.get("password")
    secret = password if isinstance(password, Secret) else None
    if isinstance(dsn, str):
        check_conninfo(dsn)
        return Dsn(dsn, secret, f"{place}.dsn")
    if isinstance(dsn, dict):
        return Dsn(read_secret(dsn, f"{place}.dsn", folder), secret, f"{place}.dsn")
    raise ValueError("is missing" if dsn is None else "must be a connection string, {env: NAME} or {file: PATH}")


def read_sql_file(value: object, folder: Path) -> Path:
    """Return the path of a view's query, which must exist and be text."""
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise ValueError("must be the path of a .sql file")
    file = Path(absolute(value, folder))
    try:
        with file.open("rb") as stream:
            data = stream.read(_SQL_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"can't be read: {file} ({error.strerror})") from None
    if len(data) > _SQL_BYTES_MAX:
        raise ValueError(f"is larger than {_SQL_BYTES_MAX} bytes: {file}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"is not UTF-8: {file}") from None
    if not text.strip():
        raise ValueError(f"is empty: {file}")
    return file


def read_reads(alias: str, value: object, folder: Path) -> tuple[str, TableName] | str | ExternalTable:
    """Return what one entry of a view's `reads` names: a source's table, another view, or an external table."""
    if not _ALIAS.fullmatch(alias):
        raise ValueError("is not a name for SQL: a letter or _, then letters, digits and _")
    if isinstance(value, dict) and value.keys() == {"view"}:
        if not isinstance(value["view"], str):
            raise ValueError("must be the name of a view: {view: name}")
        return value["view"]
    if isinstance(value, dict):
        return read_external(value, folder)
    if not isinstance(value, str) or "/" not in value:
        raise ValueError("must be source/schema.table, {view: name}, {delta: path or URL} or {catalog: schema.table}")
    source, _, table = value.partition("/")
    return source, parse_table(table)


def read_secret(value: object, place: str, folder: Path) -> Secret:
    """Return the secret that `{env: NAME}` or `{file: PATH}` names; a file is relative to `folder`."""
    kind, text = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", "")
    if kind not in ("env", "file") or not isinstance(text, str) or "\0" in text or not text.strip():
        raise ValueError("must be {env: NAME} or {file: PATH}; secrets do not stand in this file")
    return EnvSecret(text, place) if kind == "env" else FileSecret(Path(absolute(text, folder)), place)


def read_groups(document: YamlDocument, value: object, sources: Sources) -> dict[str, tuple[str, ...]]:
    """Return the groups with their sources; every mistake is added to `document`."""
    if value is not None and not isinstance(value, dict):
        document.add(("groups",), "must be a mapping (key: value)")
        return {}
    groups: dict[str, tuple[str, ...]] = {}
    for name, listed in (value or {}).items():
        path = ("groups", name)
        if not re.fullmatch(NAME_PATTERN, name):
            document.add(path, "is not a name: a small letter, then at most 52 small letters, digits and _")
        if name in sources:
            document.add(path, "is the name of a source; give the group another one")
        if not isinstance(listed, list) or len(listed) < 2 or not all(isinstance(source, str) for source in listed):
            document.add(path, "must be a list of two sources or more: {shop: [shop_a, shop_b]}")
            continue
        for i, source in enumerate(listed):
            mistake = _mistake(source, listed[:i], groups, sources)
            if mistake is not None:
                document.add((*path, i), mistake)
        groups[name] = tuple(listed)
    return groups


def _mistake(source: str, before: list[str], groups: Mapping[str, tuple[str, ...]], sources: Sources) -> str | None:
    """Return what is wrong with a source that follows those of `before` in its group."""
    if source not in sources:
        return f"{source} is no source; {hint(source, sources)}"
    if source in before:
        return f"names {source} twice"
    other = next((group for group, members in groups.items() if source in members), None)
    if other is not None:
        return f"{source} is in the group {other} already; a source is in one group at most"
    first = sources.get(before[0]) if before else None
    second = sources[source]
    if first is None or second is None or not _differ(first.dsn, second.dsn):
        return None
    return f"{source} has another server or database in its dsn than {before[0]}; a group is of one database"


def _differ(one: object, other: object) -> bool:
    """True if two connection strings say that they lead to different databases; a secret is not read for it."""
    if not isinstance(one, Dsn) or not isinstance(other, Dsn) or one.database is None or other.database is None:
        return False
    return (one.server, one.database) != (other.server, other.database)
