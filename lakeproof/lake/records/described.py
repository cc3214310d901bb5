"""What people should know of a source's tables, as the lake keeps it: comments, whole types, nullability, defaults.

Reading it from the source belongs to `lakeproof.postgres.catalog.descriptions`. The documents are only shown and never
affect data, so a damaged one is treated as missing.

    described.json                          the tables as they are
    described/<schema>/<table>/<n>.json     one table, before its first change and after each
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lakeproof.errors import LakeError
from lakeproof.field_types import TableField
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import TableDescription
from lakeproof.storage.document import Document
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class Described(Document):
    """The published tables of a source as they were read at `read_at`, when they last differed from the reading before."""

    FORMAT = "lakeproof.described/1"

    read_at: str = ""
    tables: Mapping[TableField, TableDescription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DescribedTable(Document):
    """One version of a table's description; `read_at`: when it was first read, "" for the one before all changes."""

    FORMAT = "lakeproof.describedtable/1"

    table: TableField
    read_at: str
    description: TableDescription


def read_described(lake: SourceLake) -> dict[TableName, TableDescription]:
    """Return what is kept; empty if nothing is, or it can't be read."""
    try:
        document = Described.read(lake.store, lake.paths.descriptions)
    except LakeError:
        return {}
    return {} if document is None else dict(document.tables)


def keep_described(lake: SourceLake, tables: Mapping[TableName, TableDescription]) -> bool:
    """Keep a reading if it differs from what is kept, with a version for each table that has changed; True if it differs."""
    before = read_described(lake)
    if not tables or tables == before:
        return False
    now = now_text()
    for table, description in tables.items():
        if table in before and before[table] != description:
            _put_versions(lake, table, before[table], description, now)
    lake.store.put(lake.paths.descriptions, Described(now, tables).to_bytes())
    return True


def _put_versions(lake: SourceLake, table: TableName, old: TableDescription, new: TableDescription, now: str) -> None:
    number = len(lake.store.list(lake.paths.description_versions(table)))
    before = [] if number else [DescribedTable(table, "", old)]
    for version in [*before, DescribedTable(table, now, new)]:
        number += 1
        # Another process that keeps the same change just now has put it.
        with suppress(AlreadyExistsError):
            lake.store.put_if_absent(lake.paths.description_version(table, number), version.to_bytes())
