"""Features that the readers of each table must know, for `status`.

Reading a table's log is in `lakeproof.lake.delta.log.protocol`; changing what is needed belongs to
compaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.lake.delta.log.protocol import NOT_PORTABLE, reader_features
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class TableReaders:
    """The features that readers of a table's history or current must know: feature → reason.

    `keeps`: the table is configured as portable, and has features since before, which it keeps until it begins again.
    """

    features: Mapping[str, str]
    keeps: bool


def table_readers(lake: SourceLake, cut: Cut, portable: Collection[TableName]) -> dict[TableName, TableReaders]:
    """Return the features at the versions that a cut names, without tables whose logs can't be read."""
    needs = {}
    for table, cut_table in sorted(cut.tables.items()):
        places = (
            (lake.paths.history(table), cut_table.history_version),
            (lake.paths.current(table), cut_table.current_version),
        )
        try:
            read = [reader_features(lake.url(key), version).reasons for key, version in places]
        except (LakeError, OSError):
            # The next compaction holds such a table, with the reason.
            continue
        features = {name: reason for reasons in read for name, reason in reasons.items()}
        needs[table] = TableReaders(features, table in portable and not NOT_PORTABLE.isdisjoint(features))
    return needs
