"""Keeps comments, full types and nullability of a source's tables in its lake, for catalogs to show without its database.

Reading them belongs to `lakeproof.postgres.catalog_descriptions`, showing them to Dagster. The document is only shown and
never affects data, so a damaged one is treated as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeproof.config.model import Config
from lakeproof.errors import LakeError, LakeproofError
from lakeproof.events import Event, Report, silent
from lakeproof.field_types import TableField
from lakeproof.names import TableName
from lakeproof.postgres.catalog_descriptions import TableDescription, read_descriptions
from lakeproof.postgres.connection import connect
from lakeproof.storage.document import Document
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class Described(Document):
    """The published tables of a source as they were read at `read_at`, when they last differed from the reading before."""

    FORMAT = "lakeproof.described/1"

    read_at: str = ""
    tables: Mapping[TableField, TableDescription] = field(default_factory=dict)


def describe(config: Config, name: str) -> bool:
    """Read the source's descriptions and keep them, if they have changed; return True if they have.

    Raises SourceError, TransientError if the server can't be read, LakeError if the lake can't be written.
    """
    source, lake = config.source(name), SourceLake.open(config.location, name)
    with connect(source.dsn, "lakeproof describe") as connection:
        tables = read_descriptions(connection, source)
    if not tables or tables == described(lake):
        return False
    lake.store.put(lake.paths.descriptions, Described(now_text(), tables).to_bytes())
    return True


def describe_quietly(config: Config, name: str, report: Report = silent) -> None:
    """Do the same at the end of something more important: a failure is reported, and not raised."""
    try:
        describe(config, name)
    except LakeproofError as error:
        report(Event("describe.failed", f"comments and types were not read: {error}", {"source": name}))


def described(lake: SourceLake) -> dict[TableName, TableDescription]:
    """Return what is kept; empty if nothing is, or it can't be read."""
    try:
        document = Described.read(lake.store, lake.paths.descriptions)
    except LakeError:
        return {}
    return {} if document is None else dict(document.tables)
