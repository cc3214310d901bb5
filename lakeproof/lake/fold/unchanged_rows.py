"""Rows of a range with the values that updates left out: named for history, filled in for current, in Arrow.

Finding the holders belongs to `holders`, the same by Spark to `unchanged_values`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakeproof.hidden_columns import FROM, TEXT
from lakeproof.lake.columns import column_names, large_columns
from lakeproof.lake.fold.holders import Holders, NotFolded
from lakeproof.lake.fold.key_fold import FoldedFile
from lakeproof.schema import SchemaVersion

# The values of the rows that hold what others lack, in memory.
SOURCE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The values that a range's rows lack: `rows` hold them, in the places that `place_of` gives by a row's number."""

    schema: SchemaVersion
    holders: Holders
    rows: pa.Table
    place_of: Mapping[int, int]

    def marked(self, rows: pa.Table, numbers: Sequence[int]) -> pa.Table:
        """Return rows with these numbers with `_lp_from`, which names the holder of each value that a row lacks."""
        marks = self.holders.marks
        named = [_json(marks[n]) if n in marks else None for n in numbers]
        return _with(rows, FROM, pa.array(named, pa.string()))

    def completed(self, rows: pa.Table, numbers: Sequence[int]) -> pa.Table:
        """Return rows with these numbers with every value, and with `_lp_from`."""
        rows = self.marked(rows, numbers)
        if not self.rows.num_rows:
            # Whatever lacked a value is not there any more.
            return rows
        texts = rows.column(TEXT).to_pylist()
        for i, sources in self.holders.sources.items():
            column = self.schema.columns[i]
            places = [self.place_of[sources[n]] + len(numbers) if n in sources else k for k, n in enumerate(numbers)]
            for name in (column.name,) if column.name in rows.column_names else ():
                rows = _with(rows, name, _behind(rows, self.rows, name).take(pa.array(places, pa.int64())))
            given = self.rows.column(TEXT).take(
                pa.array([self.place_of[sources[n]] for n in numbers if n in sources], pa.int64())
            )
            lacking = [k for k, n in enumerate(numbers) if n in sources]
            for k, text in zip(lacking, given.to_pylist(), strict=True):
                value = json.loads(text).get(str(column.attnum)) if text else None
                if value is not None:
                    texts[k] = _json({**json.loads(texts[k] or "{}"), str(column.attnum): value})
        return _with(rows, TEXT, pa.array(texts, pa.string()))


def values_of(
    schema: SchemaVersion,
    holders: Holders,
    files: Iterable[FoldedFile],
    read: Callable[[FoldedFile, np.ndarray[Any, np.dtype[np.bool_]], Sequence[str]], Iterator[pa.Table]],
) -> Unchanged:
    """Read the values that the rows of `files` which current gets lack; `read` gives the rows of a file that a mask has.

    Raises NotFolded if they take too much memory.
    """
    chosen = [(file, file.numbers) for file in files if file.numbers is not None]
    own = column_names(schema)
    names = [*(own[i] for i in large_columns(schema)), TEXT]
    alive = {int(n) for file, numbers in chosen for n in numbers[file.alive & file.holes]}
    needed = {s for sources in holders.sources.values() for n, s in sources.items() if n in alive}
    parts, place_of, size = list[pa.Table](), dict[int, int](), 0
    sought = np.fromiter(needed, np.int64, len(needed))
    for file, numbers in chosen:
        mask = np.isin(numbers, sought)
        if not mask.any():
            continue
        place_of |= {int(n): len(place_of) + k for k, n in enumerate(numbers[mask])}
        for part in read(file, mask, names):
            size += part.nbytes
            if size > SOURCE_BYTES_MAX:
                raise NotFolded(f"the values that updates left out take more than {SOURCE_BYTES_MAX >> 20} MiB")
            parts.append(part)
    stored = sorted(s for s in needed if s >= holders.count)
    if stored:
        place_of |= {s: len(place_of) + k for k, s in enumerate(stored)}
        parts.append(holders.stored.select(names).take(pa.array([s - holders.count for s in stored], pa.int64())))
    return Unchanged(schema, holders, _concatenated(parts) if parts else pa.table({}), place_of)


def _concatenated(parts: Sequence[pa.Table]) -> pa.Table:
    schema = parts[0].schema
    return pa.concat_tables([part if part.schema == schema else part.cast(schema) for part in parts])


def _behind(rows: pa.Table, more: pa.Table, name: str) -> pa.ChunkedArray:
    values = rows.column(name)
    added = more.column(name)
    return pa.chunked_array([*values.chunks, *(chunk.cast(values.type) for chunk in added.chunks)], values.type)


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    if name not in rows.column_names:
        return rows.append_column(name, values)
    return rows.set_column(rows.column_names.index(name), name, values)


def _json(entries: Mapping[str, Any]) -> str:
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
