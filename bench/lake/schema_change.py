"""Measures a schema change of a table with N rows: seconds until it is in a cut, and data files written or removed.

    python -m bench.lake.schema_change [--rows 100000]

Each change comes with one inserted row; its cycles are an empty one before it, the change's own, and that of the row. The
files counted are those of the change's own commits to current and history. No test belongs here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.lake.cycle import SOURCE, VERSION, WRITER, Bench, Meter
from lakeproof.catalog.differences import AddedColumn, Difference, TableDifferences
from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.change_counts import ChangeCounts
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.records.documents import CycleKind
from lakeproof.lake.records.store import newest_cut, read_cut
from lakeproof.lake.spark.session import build_session
from lakeproof.landing.catalog_history import append_catalog, put_fingerprint
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, row_schema
from lakeproof.schema import Column, SchemaVersion

ADDED = Column("added", Oid(25), -1, "text", "text", 9, identity=False)


def _changed(version: SchemaVersion, change: Callable[[Column], Column | None]) -> SchemaVersion:
    columns = [c for column in version.columns if (c := change(column)) is not None]
    return replace(version, columns=tuple(columns))


def _wider(column: Column) -> Column:
    return replace(column, kind="int8", type_oid=Oid(20), type_name="int8") if column.name == "n" else column


CHANGES: dict[str, Callable[[SchemaVersion], SchemaVersion]] = {
    "warm-up (rename)": lambda v: _changed(v, lambda c: replace(c, name="t0a") if c.name == "t0" else c),
    "add without a default": lambda v: replace(v, columns=(*v.columns, ADDED)),
    "rename": lambda v: _changed(v, lambda c: replace(c, name="renamed") if c.name == "t1" else c),
    "drop": lambda v: _changed(v, lambda c: None if c.name == "t2" else c),
    "int to bigint": lambda v: _changed(v, _wider),
}


class SchemaChangeBench(Bench):
    """A lake with one table, whose schema changes."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        super().__init__(spark, folder, rows)
        self.version = VERSION

    def land_schema(self, version: SchemaVersion) -> None:
        """Land one inserted row with a new schema, and a reading of the catalog that has the new columns."""
        new = [c for c in version.columns if c.attnum not in {k.attnum for k in self.version.columns}]
        lsn = int(self.chain.end) + 1000
        values = [pa.array([-lsn], pa.int64())]
        schema = row_schema(version)
        values += [pa.nulls(1, field.type) for field in list(schema)[10:]]
        hidden: list[pa.Array] = [
            pa.array([lsn]), pa.array([0]), pa.array([0]),
            pa.array(["insert"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            pa.array([7]), pa.array([lsn]).cast(pa.timestamp("us", "UTC")),
            pa.nulls(1, pa.int64()), pa.nulls(1, pa.list_(pa.int16())), pa.nulls(1, pa.string()),
        ]  # fmt: skip
        rows = pa.record_batch([*hidden, *values], schema=schema)
        segment = SegmentWriter(self.chain, WRITER)
        changes = [TableBatch(version, rows, ChangeCounts(1, 0, 0, 0, 0, 0))]
        segment.add(Batch(changes, 1, 1, Lsn(lsn), lsn, lsn, [SchemaInForce(version, Lsn(lsn), 0)], [], 1))
        segment.finish(Lsn(lsn))
        added = tuple(AddedColumn(c.name, c.attnum, None) for c in new)
        change = TableDifferences(version.oid, version.table, (Difference.COLUMN_ALTERED,), None, None, added=added)
        put = put_fingerprint(
            self.source_lake,
            Incarnation(1),
            Fingerprint({}, {}, {}),
            number=self.chain.next_number,
            writer=WRITER,
        )
        append_catalog(self.chain, WRITER, CatalogRecord(Lsn(1), Lsn(lsn), *put, (change,)), Lsn(lsn))
        self.version = version

    def files_of_the_change(self) -> int:
        """Return the number of data files that the newest cycle of kind `schema` added or removed in both tables."""
        cut = newest_cut(self.source_lake)
        while cut is not None and cut.kind is not CycleKind.SCHEMA:
            cut = read_cut(self.source_lake, CycleNumber(cut.number - 1))
        if cut is None:
            raise SystemExit("there was no cycle of kind schema; report it")
        state = cut.tables[VERSION.table]
        files = 0
        for key, number in (
            (self.source_lake.paths.current(VERSION.table), state.current_version),
            (self.source_lake.paths.history(VERSION.table), state.history_version),
        ):
            log = Path(self.source_lake.url(key)) / "_delta_log" / f"{number:020d}.json"
            files += sum(bool({"add", "remove"} & set(json.loads(line))) for line in log.read_text().splitlines())
        return files


def main() -> None:
    """Measure each change once, in one lake."""
    parser = argparse.ArgumentParser(description="Time schema changes of a table, and count the files they write.")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    meter = Meter(spark)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        bench = SchemaChangeBench(spark, Path(folder), options.rows)
        for name, change in CHANGES.items():
            bench.land_schema(change(bench.version))
            spent = meter.measure(bench.cycle)
            files = bench.files_of_the_change()
            line = f"{spent.wall:.2f} s, CPU {spent.cpu:.2f} s, data files added or removed: {files}"
            print(f"{SOURCE}, {options.rows} rows, {name}: {line}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
