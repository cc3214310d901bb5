"""A first configuration, written from what a database has: its tables, their keys, the columns that are kept as text.

Checking a configured source is in `check`. Nothing is changed on the server, and no secret is written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from lakeproof.config.model import SourceConfig
from lakeproof.config.secret import check_conninfo
from lakeproof.config.table_names import TablePattern, table_text
from lakeproof.config.values import NAME_PATTERN
from lakeproof.errors import ConfigError, DefiniteError, manual
from lakeproof.events import counted
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import Candidate, as_if_published
from lakeproof.postgres.catalog.selection import CatalogRelation, user_relations
from lakeproof.postgres.catalog.tables import ACTIONS, PublishedTable
from lakeproof.postgres.checks.tables import named_facts, yaml_text
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.postgres.connections.refusals import PasswordMissingError
from lakeproof.postgres.server import ServerIdentity, identify
from lakeproof.schema import Identity, describe_left_out
from lakeproof.values.types import EXACT_TEXT

_INSERTS = ("insert", "truncate")
_RESERVED = "views"
_SHOWN = 12
# A key and its value in a libpq connection string.
_WORD = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)")


@dataclass(frozen=True, slots=True)
class InitResult:
    """The result: the file, the source's name, its tables, those left out and why, where the password goes.

    `needs_password` is false if the connection took none, or libpq had its own password.
    """

    file: Path
    source: str
    tables: tuple[TableName, ...]
    left_out: Mapping[TableName, str]
    password_variable: str
    needs_password: bool


@dataclass(frozen=True, slots=True)
class _Database:
    """The database's tables, as far as they matter here."""

    server: ServerIdentity
    relations: tuple[CatalogRelation, ...]
    tables: Mapping[TableName, PublishedTable]
    left_out: Mapping[TableName, str] = field(default_factory=dict)


def init(file: Path, conninfo: str, name: str | None = None) -> InitResult:
    """Look at the database behind `conninfo` and write the configuration `file`, with one source.

    The source gets the database's name unless `name` is given. A password in `conninfo`, or in the environment variable
    that the file will name (`<SOURCE>_PASSWORD`), is used to connect. Raises ConfigError if the file exists, or for a
    conninfo or name that can't be, else as `connect`.
    """
    if file.exists():
        raise ConfigError(str(file), "it already exists, and is not overwritten", "name another file with -c FILE")
    public, password = _without_password(conninfo)
    source = _name(name, public)
    variable = f"{source.upper()}_PASSWORD"
    password = password or os.environ.get(variable)
    full = make_conninfo(public, password=password) if password else public
    with _connected(full, None if password else variable) as conn:
        database = _look(conn, source, full)
    text = "\n".join(_lines(database, source, public, variable if password else None)) + "\n"
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigError(
            str(file), "it was created meanwhile", "look at it, or name another file with -c FILE"
        ) from None
    return InitResult(file, source, tuple(database.tables), database.left_out, variable, bool(password))


def _connected(conninfo: str, variable: str | None) -> Connection:
    """Connect; if the server asks for a password that nobody gave, the remedy names the `variable` to set."""
    try:
        return connect(SecretStr(conninfo), "lakeproof init")
    except PasswordMissingError as error:
        if variable is None:
            raise
        raise PasswordMissingError(
            error.thing, error.reason, f"set {variable} for this process, then try again"
        ) from None


def _without_password(conninfo: str) -> tuple[str, str | None]:
    """Return the conninfo without its password, and the password."""
    try:
        parts = conninfo_to_dict(conninfo)
        password = parts.pop("password", None)
        public = _as_typed(conninfo, parts)
        check_conninfo(public)
    except ProgrammingError:
        # libpq's own words may quote the password.
        raise ConfigError("--dsn", "is not a libpq connection string or URI", "write host=… dbname=… user=…") from None
    except ValueError as error:
        raise ConfigError("--dsn", str(error), "write host=… dbname=… user=…") from None
    return public, None if password is None else str(password)


def _as_typed(conninfo: str, parts: Mapping[str, str | int | None]) -> str:
    """Return the conninfo as a person wrote it, without its password; one that can't be taken apart is written anew."""
    kept = [word for word in _WORD.finditer(conninfo) if word[1] != "password"]
    for text in (conninfo.strip(), " ".join(f"{word[1]}={word[2]}" for word in kept)):
        with suppress(ProgrammingError):
            if conninfo_to_dict(text) == parts:
                return text
    return make_conninfo("", **parts)


def _name(given: str | None, conninfo: str) -> str:
    if given is not None:
        if not re.fullmatch(NAME_PATTERN, given) or given == _RESERVED:
            reason = f"is no source's name: a small letter, then small letters, digits and _; and not {_RESERVED}"
            raise ConfigError(f"--name {given[:80]}", reason, "give another name")
        return given
    dbname = str(conninfo_to_dict(conninfo).get("dbname") or "source").lower()
    name = re.sub(r"[^a-z0-9_]", "_", dbname)[:40].lstrip("_0123456789")
    return name if name and name != _RESERVED else "source"


def _look(conn: Connection, source: str, conninfo: str) -> _Database:
    server = identify(conn)
    relations = tuple(relation for relation in user_relations(conn) if not relation.ancestors)
    fit = [relation.table for relation in relations if relation.unsupported_reason is None]
    facts = named_facts(conn, fit)
    candidates = {int(row["oid"]): Candidate(ACTIONS if row["has_identity"] else _INSERTS) for row in facts.values()}
    assumed = SourceConfig(name=source, dsn=SecretStr(conninfo), publication=source, slot=source)
    refused: dict[TableName, DefiniteError] = {}
    tables = as_if_published(conn, assumed, candidates, refused)
    left_out = {
        relation.table: relation.unsupported_reason for relation in relations if relation.unsupported_reason is not None
    }
    return _Database(server, relations, tables, left_out | {table: error.reason for table, error in refused.items()})


def _lines(database: _Database, source: str, conninfo: str, variable: str | None) -> Iterator[str]:
    server = database.server
    yield f"# Written by `lakeproof init` from database {_plain(server.database)}, PostgreSQL {server.major}."
    yield f"# Every key and its default: {manual('The configuration: `lakeproof.yaml`', 'The top level')}."
    yield "# Next: lakeproof check, plan, apply, bootstrap."
    yield "lake: ./lake"
    yield "sources:"
    yield f"  {source}:"
    yield f"    dsn: {json.dumps(conninfo, ensure_ascii=False)}"
    if variable is not None:
        yield "    # No password stands in this file: set the variable, or write {file: PATH}."
        yield f"    password: {{env: {variable}}}"
    else:
        yield "    # No password was needed, or libpq had it (passfile, PGPASSWORD); else:"
        yield f"    # password: {{env: {source.upper()}_PASSWORD}}"
    yield from _tables(database)
    texts = {name: _texts(table) for name, table in database.tables.items()}
    if any(texts.values()):
        yield "    # Kept as PostgreSQL's exact text; `lakeproof check` says how numerics become decimals:"
        yield from (
            f"    #   {_plain(table_text(name))}: {', '.join(columns)}" for name, columns in texts.items() if columns
        )


def _tables(database: _Database) -> Iterator[str]:
    if not database.tables:
        yield "    # The database has no table that could be followed, or the role may see none."
        yield "    tables: []"
    else:
        yield "    tables:"
    schemas = sorted({relation.table.schema for relation in database.relations})
    for schema in schemas:
        names = [name for name in database.tables if name.schema == schema]
        if names:
            every = _plain(str(TablePattern(schema, "*")))
            yield f"      # {len(names)} of schema {_plain(schema)}; `{every}` instead of them means all, later ones too."
        for name in names:
            yield f"      - {yaml_text(table_text(name))}  # {_plain(_identity(database.tables[name]))}"
        for name, reason in database.left_out.items():
            if name.schema == schema:
                yield f"      # left out: {_plain(table_text(name))}: {_plain(reason)}"


def _identity(table: PublishedTable) -> str:
    version = table.version
    columns = counted(len(version.columns), "column")
    if table.left_out:
        columns += f", without {describe_left_out(table.left_out)}"
    if version.identity is Identity.FULL:
        return f"{columns}; identity FULL: name a `key` under `table` if columns tell its rows apart"
    if not table.has_identity:
        return f"{columns}; no identity: its inserts alone are followed"
    return f"{columns}; key {', '.join(version.key)}"


def _texts(table: PublishedTable) -> list[str]:
    columns = [
        _plain(f"{column.name} ({column.type_name})") for column in table.version.columns if column.kind == EXACT_TEXT
    ]
    return [*columns[:_SHOWN], f"{len(columns) - _SHOWN} more"] if len(columns) > _SHOWN else columns


def _plain(text: str) -> str:
    """Return the text on one line of a comment."""
    return "".join(c if c.isprintable() else "?" for c in text)
