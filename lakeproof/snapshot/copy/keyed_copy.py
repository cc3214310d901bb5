"""A copy of single keys' rows at one consistent point, for a repair: its files, its document, and its end.

Reading rows from PostgreSQL does not belong here (`lakeproof.postgres.copying.keys`), nor writing their files
(`keyed_rows`), nor entering them in the lake (`lakeproof.lake.cycle.table_again`). `lake/FORMAT.md` has the fields.

    <folder>/<n>-rows.parquet   the rows that the source has under the keys of the n-th table: of some keys there are none
    <folder>/<n>-keys.parquet   the keys: a row for each, with nothing but the key's columns
    <folder>/copy.json          put last: the copy exists from here on

Both files have the form of a snapshot's chunk. The process that makes a copy holds the source's lease, and its cycle enters
the copy under the same lease: a copy that no intent names is garbage. The repair removes its copy when its cycle has ended;
the copy of a killed process is removed by the next repair, or by maintenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.field_types import IncarnationField, LsnField, TableField
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.storage.document import Document, Part
from lakeproof.storage.source_lake import SourceLake

_DOCUMENT = "copy.json"


@dataclass(frozen=True, slots=True)
class KeyedTable(Part):
    """The rows of some keys of a table, and these keys, whose other columns are NULL."""

    rows: SnapshotTable
    keys: SnapshotTable


@dataclass(frozen=True, slots=True)
class KeyedCopy(Document):
    """The rows of single keys of tables, as the source has them at `consistent_point`."""

    FORMAT = "lakeproof.keyedcopy/1"

    incarnation: IncarnationField
    consistent_point: LsnField
    made_at: str
    tables: Mapping[TableField, KeyedTable]


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    """A copy in the store; `key` is its folder."""

    key: str
    copy: KeyedCopy


def place_copy(lake: SourceLake, folder: str, copy: KeyedCopy) -> PlacedCopy:
    """Put the document of a copy whose files are durable."""
    tables = [table for keyed in copy.tables.values() for table in (keyed.rows, keyed.keys)]
    lake.store.sync_names(f"{folder}/{chunk.path}" for table in tables for chunk in table.chunks)
    lake.store.put_if_absent(f"{folder}/{_DOCUMENT}", copy.to_bytes())
    return PlacedCopy(folder, copy)


def read_copy(lake: SourceLake, folder: str) -> KeyedCopy:
    """Return the document of a copy; raises LakeError if there is none, or if it is damaged."""
    copy = KeyedCopy.read(lake.store, f"{folder}/{_DOCUMENT}")
    if copy is None:
        raise LakeError(lake.url(folder), "it has no copy of keys", "restore it from a backup")
    return copy


def copies_to_remove(lake: SourceLake) -> list[str]:
    """Return the keys of all copies' files, the documents first.

    The caller holds the lease, and no intent waits for its cut: so nobody needs them any more.
    """
    return sorted(lake.store.list(lake.paths.keyed_copies), key=lambda key: not key.endswith(_DOCUMENT))


def remove_copies(lake: SourceLake) -> None:
    """Remove all copies; called as `copies_to_remove`."""
    for key in copies_to_remove(lake):
        lake.store.delete(key)
