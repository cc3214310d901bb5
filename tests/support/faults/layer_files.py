"""Other rows in a data file of a lake that a test proves, and the file as it was again.

Which damage is made belongs to the tests; damage that keeps a file's length to `damage.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.config.model import Config
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.files.data_files import deleted_rows
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_cuts import cut_of

Change: TypeAlias = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Layer:
    """The files of one table in one layer, at the newest cut."""

    config: Config
    name: str
    layer: str = "current"

    @property
    def folder(self) -> Path:
        lake = SourceLake.open(self.config.lake, "shop")
        return Path(lake.url(getattr(lake.paths, self.layer)(TableName("public", self.name))))

    @property
    def rows(self) -> DeltaRows:
        cut_table = cut_of(self.config).tables[TableName("public", self.name)]
        return DeltaRows.open(str(self.folder), getattr(cut_table, f"{self.layer}_version"))

    def file(self) -> Path:
        """Its largest file of rows that the version has."""
        return max((self.folder / f.path for f in self.rows.files), key=lambda f: f.stat().st_size)

    def physical(self, column: str) -> str:
        """The name of a column in files."""
        return next(field.physical for field in self.rows.fields if field.name == column)

    def rewrite(self, change: Change) -> None:
        """Put other rows into that file; another table that has linked it keeps it as it was."""
        file = self.file()
        rows = change(pq.read_table(file))
        file.unlink()
        pq.write_table(rows, file)
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def alive(layer: Layer) -> list[int]:
    """Rows of the layer's file that no vector deletes."""
    rows = layer.rows
    file = next(f for f in rows.files if layer.file().name == Path(f.path).name)
    gone = set() if file.deleted is None else set(deleted_rows(rows.table, file.deleted).tolist())
    return [row for row in range(pq.read_metadata(layer.file()).num_rows) if row not in gone]


def set_value(layer: Layer, column: str, value: object) -> Change:
    """Put a value into one row that is alive."""
    row, name = alive(layer)[-1], layer.physical(column)

    def change(rows: pa.Table) -> pa.Table:
        values = rows.column(name).to_pylist()
        assert values[row] != value
        values[row] = value
        return rows.set_column(rows.column_names.index(name), name, pa.array(values, rows.schema.field(name).type))

    return change


def without(row: int) -> Change:
    """Take one row out."""
    return lambda rows: rows.filter(pc.not_equal(pa.array(range(rows.num_rows)), row))


def set_texts(layer: Layer, change: Callable[[str], str | None]) -> Change:
    """Change every exact text."""
    name = layer.physical("_lp_text")

    def changed(rows: pa.Table) -> pa.Table:
        values = [None if text is None else change(text) for text in rows.column(name).to_pylist()]
        assert values != rows.column(name).to_pylist()
        return rows.set_column(rows.column_names.index(name), name, pa.array(values, pa.string()))

    return changed


@contextmanager
def kept(file: Path) -> Iterator[None]:
    """Put a file back as it was when the block ends."""
    copy = file.with_name(f"{file.name}.kept")
    shutil.copy2(file, copy)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        copy.rename(file)


def put(file: Path, data: bytes) -> None:
    """Put other bytes into a file."""
    # Another table that has linked the file keeps it as it was.
    file.unlink()
    file.write_bytes(data)
