"""Checks if tables still are as a snapshot saw them, by the catalog then and the catalog now; it waits for no lock.

Rewritten files do not belong here: they are compared under a chunk's lock (`copying/snapshot.py`). What a change means
for the stream is in `lakeproof.catalog.differences`.

A copy reads its columns by their names: a column that was dropped and created again under its name would be read as
NULLs, without an error. So a copy counts only if afterwards the catalog still has the same entries for its table as at
the snapshot. This may be checked from outside, after the copy and for many tables at once: it sees whatever came in
between. It must not use a function of the server that opens the tables: that waits behind an ALTER that waits for our
own chunk's lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TypeAlias

from lakeproof.catalog.fingerprint import Fingerprint, TableFacts
from lakeproof.config.model import SourceConfig
from lakeproof.names import Oid
from lakeproof.postgres.catalog.fingerprint import read_at_snapshot
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.connections.connect import Connection

_Facts: TypeAlias = tuple[object, ...]


def read_catalog(conn: Connection, source: SourceConfig, tables: Collection[Oid]) -> Fingerprint:
    """Read the catalog as `conn` sees it: now, or at its transaction's snapshot. Raises as `source_errors`."""
    return read_at_snapshot(conn, publications_of(conn, source), tables)


def change_since(then: Fingerprint, now: Fingerprint, table: Oid) -> str | None:
    """Return what happened to the table, None if it is as it was; a rewritten file is no change here."""
    before, after = then.tables.get(table), now.tables.get(table)
    if before is None or after is None:
        return "it was dropped, or is not published any more"
    if before.table != after.table:
        return f"it was renamed to {after.table}"
    if _columns(then, before) != _columns(now, after):
        return "its columns, their types, its key or its identity were changed"
    if {leaf.oid for leaf in before.leaves} != {leaf.oid for leaf in after.leaves}:
        return "a partition was attached or detached"
    if _partitions(before) != _partitions(after):
        return "a partition was detached and attached again, or its identity was changed"
    if _published(then, before) != _published(now, after):
        return "its row filter, its columns' list or its publication was changed"
    return None


def table_digest(reading: Fingerprint, table: Oid) -> str | None:
    """Return a digest of all that `change_since` compares, and of the files; None for a table that is not there."""
    facts = reading.tables.get(table)
    if facts is None:
        return None
    every = (
        _columns(reading, facts),
        _partitions(facts),
        _published(reading, facts),
        sorted(reading.files(table).items()),
    )
    return hashlib.sha256(repr((facts.table, every)).encode()).hexdigest()


def _columns(reading: Fingerprint, table: TableFacts) -> _Facts:
    types = reading.types_of(column.type_oid for column in table.columns)
    return table.kind, table.identity, table.key, table.columns_text, types


def _partitions(table: TableFacts) -> _Facts:
    return tuple((leaf.oid, leaf.identity, leaf.attached, leaf.links) for leaf in table.leaves)


def _published(reading: Fingerprint, table: TableFacts) -> _Facts:
    about = sorted({entry.publication for entry in table.entries})
    return table.entries, tuple(reading.publications[publication] for publication in about)
