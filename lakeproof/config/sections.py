"""Reads single values that need more than a type: the lake, a source's dsn, a view's SQL and the tables that it reads.

Each function takes the value as the YAML has it and raises ValueError, as a phrase, if it is wrong; `load` adds the line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakeproof.config.location import SUPPORTED, ObjectPlace
from lakeproof.config.secret import Dsn, EnvSecret, FileSecret, Secret, check_conninfo
from lakeproof.config.section.external_table import ExternalTable, read_external
from lakeproof.config.table_names import parse_table
from lakeproof.names import TableName

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SQL_BYTES_MAX = 1 << 20


def lake_address(value: object, folder: Path) -> str:
    """Return the lake as an absolute path, or as its URL."""
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise ValueError("must be a folder, a file:// URL, or a place in an object store")
    place = ObjectPlace.parse(value)
    if place is not None:
        return value.rstrip("/")
    scheme = _URL.match(value)
    if scheme and scheme[1].lower() != "file":
        raise ValueError(f"is at {scheme[1]}://, which is not supported; name {SUPPORTED}")
    return value if scheme else _absolute(value, folder)


def is_inside(place: str, lake: str) -> bool:
    """True if `place` is the lake's folder or in it, symbolic links followed; both as `lake_address` returns them."""
    objects = [ObjectPlace.parse(p) for p in (place, lake)]
    if objects[0] is not None and objects[1] is not None:
        return f"{objects[0]}/".startswith(f"{objects[1]}/")
    if any(objects):
        return False
    inner, outer = (os.path.realpath(unquote(urlsplit(p).path) if _URL.match(p) else p) for p in (place, lake))
    return Path(inner).is_relative_to(outer)


def read_dsn(section: dict[str, object], place: str, folder: Path) -> Dsn:
    """Return a source's `dsn` and `password` together; no secret is read. A secret's file is relative to `folder`."""
    dsn, password = section.get("dsn"), section.get("password")
    if dsn is None:
        raise ValueError("is missing")
    secret = None if password is None else read_secret(password, f"{place}.password", folder)
    if secret is None and password is not None:
        raise ValueError(
            "has a password beside it that is neither {env: NAME} nor {file: PATH}; secrets do not stand in this file"
        )
    if isinstance(dsn, str):
        check_conninfo(dsn)
        return Dsn(dsn, secret, f"{place}.dsn")
    conninfo = read_secret(dsn, f"{place}.dsn", folder)
    if conninfo is None:
        raise ValueError("must be a connection string, {env: NAME} or {file: PATH}")
    return Dsn(conninfo, secret, f"{place}.dsn")


def read_spark_secret(value: object, folder: Path) -> Secret | None:
    """Return what `spark.secret` refers to; no secret is read. A file is relative to `folder`."""
    secret = None if value is None else read_secret(value, "spark.secret", folder)
    if secret is None and value is not None:
        raise ValueError("must be {env: NAME} or {file: PATH}; secrets do not stand in this file")
    return secret


def read_sql_file(value: object, folder: Path) -> Path:
    """Return the path of a view's query, which must exist and be text."""
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise ValueError("must be the path of a .sql file")
    file = Path(_absolute(value, folder))
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


def read_secret(value: object, place: str, folder: Path) -> Secret | None:
    """Return the secret that `{env: NAME}` or `{file: PATH}` names, None for anything else."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, text),) = value.items()
    if not isinstance(text, str) or "\0" in text or not text.strip():
        return None
    if kind == "file":
        return FileSecret(Path(_absolute(text, folder)), place)
    return EnvSecret(text, place) if kind == "env" else None


def _absolute(value: str, folder: Path) -> str:
    if value.startswith("~"):
        raise ValueError("begins with ~, which is not expanded; write the whole path")
    return os.path.normpath(folder / value)
