"""Others read what the ways to write leave as the dictionary has it, and Spark's own statements work on copies of it.

The batches are those of `test_ways_to_write.py`. Which reader knows which feature is
`edges/reading/test_readers_page.py`'s: here each reads the tables whose features it knows.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.protocol import reader_features
from scripts.fetch.readers import FetchError, fetch
from tests.properties.cycles.apply_model import KINDS, SEED, Batch, Kind, Row, Table, Way
from tests.support.pages.reader_process import texts

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
# The readers that know what a table of ours may have, without column mapping, and without deletion vectors either.
ALWAYS, NO_MAPPING = ("lakeproof", "queries", "duckdb_delta"), ("polars",)
PORTABLE = ("arrow", "duckdb")
FETCHED = ("polars", "duckdb", "duckdb_delta")
WAYS = [(Way.FEW, False), (Way.MANY, False), (Way.FEW, True), (Way.LINK, False), (Way.LINK, True)]


@dataclass(frozen=True)
class Left:
    """A table that is left: its name in failures, its place, and the rows that it has."""

    name: str
    path: str
    columns: Sequence[str]
    rows: Sequence[Row]

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers that know its features."""
        features = set(reader_features(self.path, newest_version(self.path)))
        unmapped = () if "columnMapping" in features else NO_MAPPING
        return (*ALWAYS, *unmapped, *(PORTABLE if "deletionVectors" not in features else ()))


def _written(spark: SparkSession, path: Path, kind: Kind, way: Way, *, portable: bool) -> Table:
    """A table after some batches in one way; the last ones leave rows, some of which are deleted."""
    rng = random.Random(f"{SEED}/{path.name}")
    if portable or way is Way.LINK:
        # A blank takes column mapping.
        kind = replace(kind, columns=tuple((name.replace(" ", "_"), of) for name, of in kind.columns))
    table = Table(spark.newSession(), str(path), kind, way, rng, portable=portable)
    table.create([table.row(key) for key in {table.key() for _ in range(30)}])
    for size in (5, 20, 5):
        table.send(table.batch(size))
    keys = list({table.key() for _ in range(12)})
    table.send(Batch(keys, [table.row(key) for key in keys]))
    table.send(Batch(keys[: len(keys) // 2], []))
    table.check()
    return table


def _left(table: Table, name: str) -> Left:
    return Left(name, table.path, table.kind.names, list(table.rows.values()))


def _by_spark(table: Table, where: str = "true") -> list[Row]:
    frame = table.session.read.format("delta").load(table.path).where(where)
    return [tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in frame.collect()]


def _treated_by_spark(table: Table, name: str) -> Left:
    """A copy of a table after Spark's DELETE, MERGE, OPTIMIZE, RESTORE and VACUUM, each compared with what it leaves."""
    copy = replace(table, path=f"{table.path}-copy", rows=dict(table.rows), states={})
    shutil.copytree(table.path, copy.path)
    session, target = copy.session, f"delta.`{copy.path}`"
    key = [f"`{column}`" for column in copy.kind.names[: copy.kind.key]]
    gone = f"pmod(hash({', '.join(key)}), 3) = 0"

    def run(statement: str, expected: Sequence[Row]) -> None:
        session.sql(statement)
        assert texts(_by_spark(copy)) == texts(expected), f"{name}, seed {SEED}: {statement.split(maxsplit=1)[0]}"

    first, kept = list(copy.rows.values()), _by_spark(copy, f"NOT ({gone})")
    run(f"DELETE FROM {target} WHERE {gone}", kept)  # noqa: S608  the test's own names
    # Each key in one spelling: Spark takes -0.0 and 0.0 for one.
    merged = {row[: copy.kind.key]: row for row in kept}
    rows = [copy.row(k) for k in [*list(merged)[::2], *(k for k in copy.rows if k not in merged)]]
    copy.frame(rows).createOrReplaceTempView("brought")
    merged |= {row[: copy.kind.key]: row for row in rows}
    same = " AND ".join(f"t.{column} <=> s.{column}" for column in key)
    run(
        f"MERGE INTO {target} t USING brought s ON {same}"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        list(merged.values()),
    )
    run(f"OPTIMIZE {target}", list(merged.values()))
    run(f"RESTORE TABLE {target} TO VERSION AS OF {table.version}", first)
    run(f"DELETE FROM {target} WHERE {gone}", kept)  # noqa: S608  as above
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    run(f"OPTIMIZE {target}", kept)
    run(f"VACUUM {target} RETAIN 0 HOURS", kept)
    return Left(f"{name}, treated by Spark", copy.path, copy.kind.names, kept)


def _read(reader: str, tables: Sequence[Left]) -> list[Mapping[str, list[str] | str]] | None:
    """Return what a reader gives for each table; None if it can't be fetched."""
    environment = dict(os.environ)
    if reader in FETCHED:
        try:
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(fetch())])
        except FetchError:
            return None
    given = [{"path": t.path, "version": newest_version(t.path), "columns": list(t.columns)} for t in tables]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pages.reader_process", reader],
        cwd=ROOT, env=environment, input=json.dumps(given), capture_output=True, text=True, check=True,
    )  # fmt: skip
    read: list[Mapping[str, list[str] | str]] = json.loads(done.stdout)
    return read


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_all_readers_see_what_was_written(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    """Our own reader, delta-rs, DuckDB and Polars; tables of three ways, and what Spark leaves of one."""
    left: list[Left] = []
    for number, (way, portable) in enumerate(random.Random(f"{SEED}/{kind.name}").sample(WAYS, 3)):
        name = f"{kind.name}, {way.value}{', portable' if portable else ''}"
        table = _written(spark, tmp_path / name.replace(" ", "_"), kind, way, portable=portable)
        left.append(_left(table, name))
        if number == 0:
            left.append(_treated_by_spark(table, name))
    wrong = []
    for reader in (*ALWAYS, *NO_MAPPING, *PORTABLE):
        tables = [table for table in left if reader in table.readers]
        given = _read(reader, tables)
        assert reader in FETCHED or given is not None
        for one, read in zip(tables, given or [], strict=given is not None):
            if read.get("rows") != texts(one.rows):
                wrong.append(f"{reader}: {one.name}: {read.get('error', 'other rows')}")
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong)
