"""The rows of a range that was added up, read from their landed files: as history and as current have them.

Adding up belongs to `key_fold`; whether a file becomes a table's as it is, to `lakeproof.lake.cycle.table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from lakeproof.hidden_columns import FROM, KEY
from lakeproof.lake.columns import current_columns, history_columns, keeps_key
from lakeproof.lake.fold.key_fold import FoldedFile, KeyFold, Mask
from lakeproof.lake.fold.unchanged_rows import Unchanged, values_of
from lakeproof.lake.planning.landed_range import LandedRange
from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.file_rows import FileRows
from lakeproof.landing.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion

# So many rows are read at a time.
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """A range, added up. Rows are named by their file and a mask of it."""

    landed: LandedRange
    fold: KeyFold

    def history(self, chosen: Sequence[tuple[FoldedFile, Mask]]) -> Iterator[pa.Table]:
        """Give rows as history has them, each that lacks a value with the name of its holder."""
        columns, unchanged = in_landing(self.landed.schema, history_columns(self.landed.schema)), self._marks()
        for file, mask in chosen:
            for part, numbers in self.rows(file, mask, columns):
                yield part if unchanged is None else unchanged.marked(part, numbers)

    def current(self, chosen: Sequence[tuple[FoldedFile, Mask]]) -> Iterator[pa.Table]:
        """Give rows as current has them, with every value; raises NotFolded if the values left out take too much memory."""
        schema, holders = self.landed.schema, self.fold.holders
        columns = in_landing(schema, current_columns(schema))
        unchanged = None if holders is None else values_of(schema, holders, self.fold.files, self._values)
        for file, mask in chosen:
            for part, numbers in self.rows(file, mask, columns):
                yield part if unchanged is None else unchanged.completed(part, numbers)

    def sum(self) -> HistorySum:
        """Return the sum of the rows that history gets."""
        return reduce(HistorySum.plus, map(self._sum, self.fold.files), HistorySum())

    def rows(self, file: FoldedFile, mask: Mask, columns: Sequence[str]) -> Iterator[tuple[pa.Table, Sequence[int]]]:
        """Give the rows of the file that the mask has, with some of the lake's columns, and their numbers.

        `_lp_ord` is the cycle's. The numbers are nothing unless some row of the range lacks a value.
        """
        place, moved = 0, self._moved(file)
        source = FileRows(self.landed.schema, columns)
        with file.piece.open() as opened:
            at_once = max(1, min(_ROWS_AT_ONCE, ROW_GROUP_BYTES // max(1, file.piece.file.decoded.row)))
            for batch in opened.iter_batches(at_once, columns=source.needed):
                chosen = mask[place : place + batch.num_rows]
                numbers: Sequence[int] = ()
                if file.numbers is not None:
                    numbers = file.numbers[place : place + batch.num_rows][chosen].tolist()
                place += batch.num_rows
                if not chosen.any():
                    continue
                rows = batch if chosen.all() else batch.filter(pa.array(chosen))
                yield pa.table(source.of(rows, moved)), numbers

    def _marks(self) -> Unchanged | None:
        holders = self.fold.holders
        return None if holders is None else Unchanged(self.landed.schema, holders, pa.table({}), {})

    def _values(self, file: FoldedFile, mask: Mask, names: Sequence[str]) -> Iterator[pa.Table]:
        return (part for part, _ in self.rows(file, mask, names))

    def _moved(self, file: FoldedFile) -> int:
        """Return by how much the cycle's ordinals of the file's rows differ from those that it holds."""
        return self.landed.first_ordinals[file.piece.number] - file.piece.first_ordinal

    def _sum(self, file: FoldedFile) -> HistorySum:
        """Return the sum of the file's rows in the range: its writer's, less the rows outside, unless these are many."""
        whole = HistorySum(file.piece.file.rows, file.piece.file.sum)
        is_other = self._moved(file) or file.holes.any() or keeps_key(self.landed.schema)
        if is_other or 2 * int(file.in_range.sum()) < len(file.in_range):
            return self._sum_of(file, file.in_range)
        return whole if file.in_range.all() else whole.minus(self._sum_of(file, ~file.in_range))

    def _sum_of(self, file: FoldedFile, mask: Mask) -> HistorySum:
        """Return the sum of the file's rows that the mask has; they are read for it."""
        # A segment in which the range ends has files none of whose rows are in it.
        return sum_of(self.landed.schema, self.history([(file, mask)])) if mask.any() else HistorySum()


def sum_of(schema: SchemaVersion, rows: Iterator[pa.Table]) -> HistorySum:
    """Return the sum of rows of history."""
    # Imported here because it imports the compiler, which few cycles need.
    from lakeproof.landing.row_sums import RowSum

    sums = RowSum({column.name: column.attnum for column in schema.columns})
    for part in rows:
        sums.add(part)
    return HistorySum(sums.rows, sums.total)


def in_landing(schema: SchemaVersion, columns: Sequence[str]) -> list[str]:
    """Return the columns that a landed row has, or that are computed from it; the others are NULL."""
    return [name for name in columns if name != FROM and (name != KEY or keeps_key(schema))]
