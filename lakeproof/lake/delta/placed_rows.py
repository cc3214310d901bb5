"""The rows of a Delta table with their places in its files, selected once and deleted by their places in one commit.

Which rows are selected belongs to the caller. `vectors` finds rows by the key of a change; here the caller needs more of a
row than its place to decide, and a second scan for the places is spared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakeproof.hidden_columns import scratch
from lakeproof.lake.delta.commit import Unsupported
from lakeproof.lake.delta.jvm import TableFile, Transaction
from lakeproof.lake.delta.reader_features import VECTORS_ENABLED
from lakeproof.lake.delta.self_test import supported
from lakeproof.lake.delta.vectors import FoundRows, by_file, fitting

# A row's file and its number there.
PATH, ROW = scratch("path"), scratch("at")


class PlacedRows:
    """The rows of one version of a table, in the transaction that deletes some of them."""

    def __init__(self, session: SparkSession, path: str, version: int) -> None:
        """Raise `Unsupported` if the table can't be written in this way, or has another version."""
        if not supported(session, path):
            raise Unsupported("Delta's names can't be used")
        self._txn = Transaction(session, path)
        if self._txn.version != version:
            raise Unsupported("another version is the newest")
        fitting(self._txn, None)
        if not self._txn.has_property(VECTORS_ENABLED, "true"):
            raise Unsupported("the table is written without deletion vectors")
        self._files = self._txn.files()
        self._txn.read_all(self._files)

    def frame(self, values: Mapping[str, Sequence[Any]] | None = None) -> DataFrame | None:
        """Return the rows with `PATH` and `ROW`, of the files that may have one of some columns' `values`; None: of none.

        Values of other columns than integers are not compared with the files' bounds.
        """
        # The type of an array or a struct is an object.
        integers = {f["name"] for f in self._txn.fields if isinstance(f["type"], str) and f["type"] in _INTEGERS}
        searched = {n: sorted(v) for n, v in (values or {}).items() if n in integers and None not in v}
        chosen = [file for file in self._files if self._may_hold(file, searched)]
        if not chosen:
            return None
        rows = self._txn.frame(chosen)
        metadata = rows.metadataColumn("_metadata")
        return rows.select("*", metadata.getField("file_path").alias(PATH), metadata.getField("row_index").alias(ROW))

    def in_place_of(self, images: DataFrame | None, hits: pa.Table | None) -> FoundRows:
        """Return what commits the rows `images` in place of the rows at `hits`, which has `PATH` and `ROW`."""
        places = None if hits is None or not hits.num_rows else by_file(hits.select([PATH, ROW]))
        return FoundRows(self._txn, fitting(self._txn, images), self._files, places)

    def _may_hold(self, file: TableFile, searched: Mapping[str, Sequence[int]]) -> bool:
        """True if a file may have a row with one of the values, which are in order, in each of these columns."""
        for name, values in searched.items():
            bounds = file.key_range(self._txn.physical(name))
            first = 0 if bounds is None else bisect_left(values, bounds[0])
            if bounds is not None and (first == len(values) or values[first] > bounds[1]):
                return False
        return True


_INTEGERS = frozenset(t().jsonValue() for t in (T.ByteType, T.ShortType, T.IntegerType, T.LongType))
