"""The rows that the lake has of a table, with its own changes up to a cycle's end: each with its place.

Comparing them with a copy is in `table_again`, which takes some of them away; a table's changes alone are in `table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import DUP, KEY, OP, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, has_old_rows
from lakeproof.lake.cycle.table import FoldedRange
from lakeproof.lake.cycle.task import TableTask
from lakeproof.lake.delta.arrow_rows import DeltaRows, in_schema
from lakeproof.lake.delta.files.data_files import data_file
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.delta.search import LakeBase, find_places
from lakeproof.lake.fold.key_fold import KeyFold, fold_keys
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import AllRows, Numbers, Removed, UnfitError, under_keys
from lakeproof.lake.rows.difference import FILE, NUMBER, Side, digests_of
from lakeproof.lake.rows.file_rows import DIGEST, FoldedFile
from lakeproof.lake.rows.hashed import decoded_at_once

# The file of the rows that the table's own changes bring; they are numbered through.
OWN = -1
_NO_ROWS = np.empty(0, np.int64)
_ALIVE = scratch("alive")


@dataclass(frozen=True, slots=True)
class Persisted:
    """The lake's rows of a table, and its `own` changes up to the cycle's end, if they are taken and there are any.

    `gone` are the places of the rows that these changes remove, None if they remove all. `schema` has the columns that are
    compared, and of a bag `_lp_key` and `_lp_dup`.
    """

    task: TableTask
    before: CutTable
    rows: DeltaRows
    state: TableState
    own: FoldedRange | None
    counts: ChangeCounts
    gone: Mapping[str, Numbers] | None

    @classmethod
    def of(cls, task: TableTask, before: CutTable, *, own: bool, left_out: pa.Table | None = None) -> Persisted:
        """Read the log, and add the own changes up, without those of the keys that are `left_out`.

        Raises TableHeldError and UnfitError if they do not fit what is persisted, and `Unsupported`.
        """
        path = task.path("current")
        state = read_state(path, before.current_version)
        persisted = cls(task, before, DeltaRows.of_state(state), state, None, ChangeCounts(), {})
        changes = task.own_range()
        if not own or changes.older or not changes.counts.rows:
            return persisted
        fold = fold_keys(changes.landed, changes.counts, LakeBase(path, before.current_version), left_out=left_out)
        gone: Mapping[str, Numbers] | None = {}
        match fold.removed:
            case AllRows():
                gone = None
            case Removed(key, rows):
                gone = find_places(state, key, rows).rows
        taken = replace(persisted, own=FoldedRange(task, fold), counts=changes.counts, gone=gone)
        if has_old_rows(task.schema) and not task.schema.is_bag and not taken.is_presupposed(fold):
            raise UnfitError("its changes presuppose other rows than the lake has under their keys")
        return taken

    def is_presupposed(self, fold: KeyFold) -> bool:
        """True if the changes' old rows are the lake's: whoever adds history up takes whole rows out."""
        schema, parts = self.task.schema, list[pa.Table]()
        for file in fold.files:
            rows = [part for part, _ in fold.rows(file, file.in_range, [DIGEST, OP, ORD])]
            if rows:
                alive = pa.array(file.alive[file.in_range])
                parts.append(pa.concat_tables(rows).append_column(_ALIVE, alive))
        changes = pa.concat_tables(parts)
        truncate = pc.max(changes.filter(pc.equal(changes.column(OP), "truncate")).column(ORD)).as_py()
        changes = changes if truncate is None else changes.filter(pc.greater(changes.column(ORD), truncate))
        came = pc.is_in(changes.column(OP), value_set=pa.array(["insert", "update"])).to_numpy()
        net = np.where(came, 1, -1) - changes.column(_ALIVE).to_numpy()
        gone = [digests_of(schema, self._at(path, numbers)) for path, numbers in (self.gone or {}).items()]
        digests = pa.chunked_array([*changes.column(DIGEST).chunks, *gone], pa.string()).combine_chunks()
        codes = digests.dictionary_encode().indices.to_numpy()
        signs = np.concatenate([net, np.ones(len(codes) - len(net), np.int64)])
        return not np.bincount(codes, signs).any()

    def _at(self, path: str, numbers: Numbers) -> pa.Table:
        """Return the rows of a file with these numbers."""
        batches = self.rows.at_places(data_file(self.state.files[path]).path, numbers, self.schema.names)
        return pa.Table.from_batches((batch for batch, _ in batches), self.schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are compared, and of a bag those by which changes find a row."""
        schema = self.task.schema
        names = [*column_names(schema), TEXT, *([KEY, DUP] if schema.is_bag else [])]
        return self.rows.schema_of(names)

    @property
    def paths(self) -> Sequence[str]:
        """The files, in order of their numbers."""
        return list(self.state.files)

    @property
    def side(self) -> Side:
        """All rows, each with its place."""
        return Side(_placed_schema(self.schema), self._read)

    def under(self, keys: pa.Table) -> Side:
        """Return the rows that have one of the keys, each with its place."""
        return Side(_placed_schema(self.schema), partial(self._read_under, keys))

    def _read(self) -> Iterator[pa.RecordBatch]:
        schema, gone = self.schema, self.gone
        at_once = decoded_at_once(self.before.row_bytes)
        for number, (path, entry) in enumerate(self.state.files.items() if gone is not None else ()):
            going = (gone or {}).get(path)
            for batch, numbers in self.rows.numbered(data_file(entry), schema.names, at_once, going):
                yield _placed(batch, number, numbers)
        for part, numbers in self._own_rows():
            yield _placed(one_batch(part, schema), OWN, numbers)

    def _own_rows(self) -> Iterator[tuple[pa.Table, Numbers]]:
        first = 0
        for part in () if self.own is None else self.own.alive():
            yield part, np.arange(first, first + part.num_rows)
            first += part.num_rows

    def _read_under(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        schema, number_of = self.schema, {path: number for number, path in enumerate(self.paths)}
        # By no statistics: a file may have been altered behind them.
        places = {} if self.gone is None else find_places(self.state, keys.column_names, keys, by_statistics=False).rows
        for path, numbers in places.items():
            kept = np.setdiff1d(numbers, (self.gone or {}).get(path, _NO_ROWS))
            yield _placed(one_batch(self._at(path, kept), schema), number_of[path], kept)
        for part, numbers in self._own_rows():
            chosen = np.flatnonzero(under_keys(part, keys))
            yield _placed(one_batch(part.take(pa.array(chosen)), schema), OWN, numbers[chosen])

    def without(self, numbers: Numbers) -> Persisted:
        """Return the same without some of the rows that its own changes bring: history has them, current does not."""
        if self.own is None or not len(numbers):
            return self
        files, first = list[FoldedFile](), 0
        for file in self.own.fold.files:
            rows = np.flatnonzero(file.alive)
            gone = numbers[(numbers >= first) & (numbers < first + len(rows))] - first
            alive = file.alive.copy()
            alive[rows[gone]] = False
            files.append(replace(file, alive=alive))
            first += len(rows)
        fold = replace(self.own.fold, files=files)
        return replace(self, own=replace(self.own, fold=fold))


def one_batch(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as one batch with the columns of a schema."""
    batches = in_schema(rows, schema).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def _placed_schema(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(FILE, pa.int64())).append(pa.field(NUMBER, pa.int64()))


def _placed(batch: pa.RecordBatch, file: int, numbers: Numbers) -> pa.RecordBatch:
    """Return rows with their places: the number of their file, and theirs."""
    files = pa.array(np.full(batch.num_rows, file, np.int64))
    return pa.record_batch([*batch.columns, files, pa.array(numbers)], schema=_placed_schema(batch.schema))
