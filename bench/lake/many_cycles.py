"""Runs very many small cycles of one table in one process, and measures what they leave, and how long it takes to open it.

    python -m bench.lake.many_cycles [--cycles 20000] [--looks 100 1000 5000] [--rows 2000] [--spark] [--keep FOLDER]

A cycle is a real segment in a landing, taken in by the real compaction under one lease, as `compact --follow` does it: an
update, an insert and a delete. At each look the files of both tables are counted, and the table is opened by our own reader,
by delta-rs, by DuckDB if `scripts/fetch/readers.py` has fetched it, and with `--spark` by Spark. No PostgreSQL and no JVM is
needed, and no test belongs here.
"""

from __future__ import annotations

import argparse
import importlib
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
from pydantic import SecretStr

from lakeproof.change_counts import ChangeCounts
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.compaction.source import compact_under
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.events import RunControl, Stop, silent
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.records.lease import hold_lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, row_schema
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.folder import part_key
from lakeproof.snapshot.state import SnapshotDoc, SnapshotTable
from lakeproof.storage.source_lake import SourceLake
from scripts.fetch.readers import FetchError, fetch

SOURCE = "bench"
WRITER = "0" * 32
_KINDS = {"id": ("int8", 20), "n": ("int4", 23), "note": ("text", 25)}
VERSION = SchemaVersion(
    TableName("public", "item"),
    Oid(16384),
    Identity.DEFAULT,
    tuple(Column(n, Oid(o), -1, k, k, i, n == "id") for i, (n, (k, o)) in enumerate(_KINDS.items(), start=1)),
    ("id",),
)
_HEAD = ChainSource("1", 1, "bench", 16384, "bench", "bench", 180006)
_LATER = timedelta(days=1)


class Bench:
    """A lake with one table, and the rows that the table should have."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.lake = SourceLake.open(str(folder), SOURCE)
        self.chain = Chain.create(self.lake, Incarnation(1), NewHead(Lsn(1), _HEAD, WRITER))
        source = SourceConfig(
            name=SOURCE, dsn=SecretStr("host=nowhere"), publication="p", slot="s", retention=RetentionConfig(cuts_s=0)
        )
        self.config = Config(path=folder / "lakeproof.yaml", lake=str(folder), sources={SOURCE: source})
        self.chance = random.Random(1)
        self.living: list[int] = []
        self.next = 0
        doc = SnapshotDoc(Incarnation(1), Lsn(1), "", "", "bench", {VERSION.table: SnapshotTable(VERSION, 0, ())})
        self.lake.store.put_if_absent(part_key(self.lake.paths.snapshot(Incarnation(1), Lsn(1)), 0), doc.to_bytes())
        self.land([("insert", self._new()) for _ in range(rows)])

    def changes(self) -> list[tuple[str, int]]:
        """Return an update, an insert and a delete."""
        place = self.chance.randrange(len(self.living))
        self.living[place], self.living[-1] = self.living[-1], self.living[place]
        gone, changed = self.living.pop(), self.chance.choice(self.living)
        return [("update", changed), ("insert", self._new()), ("delete", gone)]

    def _new(self) -> int:
        self.next += 1
        self.living.append(self.next)
        return self.next

    def land(self, changes: list[tuple[str, int]]) -> None:
        """Land a segment of one transaction."""
        lsn, count = int(self.chain.end) + 1000, len(changes)
        ops, keys = [op for op, _ in changes], [key for _, key in changes]
        rows = pa.record_batch(
            [
                pa.array([lsn] * count),
                pa.array(range(count)),
                pa.array(range(count)),
                pa.array(ops).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
                pa.array([7] * count),
                pa.array([lsn] * count).cast(pa.timestamp("us", "UTC")),
                pa.nulls(count, pa.int64()),
                pa.nulls(count, pa.list_(pa.int16())),
                pa.nulls(count, pa.string()),
                pa.array(keys, pa.int64()),
                pa.array([None if op == "delete" else lsn % 1000 for op in ops], pa.int32()),
                pa.array([None if op == "delete" else f"{key} at {lsn}" for op, key in changes]),
            ],
            schema=row_schema(VERSION),
        )
        inserted, updated, deleted = (ops.count(op) for op in ("insert", "update", "delete"))
        counts = ChangeCounts(inserted, updated, deleted, 0, 0, 0)
        schemas = [SchemaInForce(VERSION, Lsn(lsn), 0)] if self.chain.next_number == 1 else []
        segment = SegmentWriter(self.chain, WRITER)
        segment.add(Batch([TableBatch(VERSION, rows, counts)], 1, count, Lsn(lsn), lsn, lsn, schemas, [], count))
        segment.finish(Lsn(lsn))

    def run(self, cycles: int) -> list[float]:
        """Run so many cycles under one lease; return the seconds of each."""
        seconds = []
        with hold_lease(self.lake, None, Stop()) as lease:
            for _ in range(cycles):
                self.land(self.changes())
                began = time.perf_counter()
                compact_under(lease, self.config, NO_SPARK, RunControl())
                seconds.append(time.perf_counter() - began)
        return seconds

    def maintain(self) -> None:
        """Remove what no kept cut needs."""
        maintain(self.config, SOURCE, NO_SPARK, silent, MaintenanceRequest(now=datetime.now(timezone.utc) + _LATER))


def _no_spark() -> None:
    raise SystemExit("a cycle asked for Spark")


NO_SPARK = SparkOnDemand(_no_spark)  # type: ignore[arg-type]  # it returns nothing at all


def _look(bench: Bench, readers: dict[str, Callable[[str], int]], done: int, seconds: list[float]) -> None:
    """Print what there is, and how long each reader takes."""
    cut = newest_cut(bench.lake)
    if cut is None or cut.held:
        raise SystemExit("the table is held, or there is no cut")
    state = cut.tables[VERSION.table]
    last = seconds[-100:]
    print(f"after {done} cycles: {statistics.median(last) * 1000:.1f} ms a cycle (median of the last {len(last)})")
    for layer, version in (("current", state.current_version), ("history", state.history_version)):
        paths = bench.lake.paths
        path = bench.lake.url((paths.current if layer == "current" else paths.history)(VERSION.table))
        files = table_files(path, version).newest
        names = [file for file in Path(path).rglob("*") if file.is_file()]
        log = [file.name for file in names if file.parent.name == "_delta_log"]
        counts = {
            "data files": len(files),
            "their bytes": sum(file.bytes for file in files),
            "commits": sum(name.endswith(".json") for name in log),
            "checksums": sum(re.fullmatch(r"\d+\.crc", name) is not None for name in log),
            "checkpoints": sum("checkpoint" in name for name in log if name.endswith(".parquet")),
            "files on the disk": len(names),
            "bytes on the disk": sum(file.stat().st_size for file in names),
        }
        print(f"  {layer} at version {version}:", ", ".join(f"{n} {name}" for name, n in counts.items()))
        if layer == "current":
            for name, read in readers.items():
                print(f"    {name}: {_opened(read, path, len(bench.living))}", flush=True)


def _opened(read: Callable[[str], int], path: str, expected: int) -> str:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        rows = read(path)
        times.append(time.perf_counter() - began)
        if rows != expected:
            raise SystemExit(f"it gave {rows} of {expected} rows")
    return f"{statistics.median(times) * 1000:.0f} ms"


def _ours(path: str) -> int:
    version = deltalake.DeltaTable(path).version()
    return sum(batch.num_rows for batch in DeltaRows.open(path, version).batches())


def _delta_rs(path: str) -> int:
    table = deltalake.DeltaTable(path)
    read = deltalake.QueryBuilder().register("t", table).execute("SELECT count(n) + count(*) - count(n) FROM t")
    return int(pa.table(read.read_all()).column(0)[0].as_py())


def _readers(*, with_spark: bool) -> dict[str, Callable[[str], int]]:
    readers: dict[str, Callable[[str], int]] = {"ours": _ours, "delta-rs": _delta_rs}
    with suppress(FetchError, ImportError):
        sys.path.append(str(fetch()))
        duckdb = importlib.import_module("duckdb")
        (package,) = importlib.import_module("duckdb_extension_delta").__path__

        def by_duckdb(path: str) -> int:
            connection = duckdb.connect()
            connection.load_extension(f"{package}/extensions/v{duckdb.__version__}/delta.duckdb_extension")
            return int(connection.execute("SELECT count(*) FROM delta_scan(?)", [path]).fetchall()[0][0])

        readers["DuckDB"] = by_duckdb
    if with_spark:
        from lakeproof.config.section.spark import SparkConfig
        from lakeproof.lake.spark.session import build_session

        spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")

        def by_spark(path: str) -> int:
            spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001  as bench.cycle
            return spark.read.format("delta").load(path).count()

        readers["Spark"] = by_spark
    return readers


def main() -> None:
    """Run the cycles, with a look now and then; then maintain, and look once more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=20_000)
    parser.add_argument("--looks", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--keep", type=Path, help="a new folder for the lake, which stays as it is after the cycles")
    options = parser.parse_args()
    readers = _readers(with_spark=options.spark)
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as temporary:
        bench, done, seconds = Bench(options.keep or Path(temporary), options.rows), 0, list[float]()
        began = time.perf_counter()
        for look in _sorted({*options.looks, options.cycles}, options.cycles):
            seconds += bench.run(look - done)
            done = look
            _look(bench, readers, done, seconds)
        print(
            f"{done} cycles in {time.perf_counter() - began:.0f} s, {sum(seconds):.0f} s of them in cycles", flush=True
        )
        if options.keep is None:
            bench.maintain()
            print("after maintenance, with no old cut kept:")
            _look(bench, readers, done, seconds)


def _sorted(looks: Iterable[int], most: int) -> list[int]:
    return sorted(look for look in looks if look <= most)


if __name__ == "__main__":
    main()
