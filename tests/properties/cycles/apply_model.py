"""A table as a Python dictionary, and random batches for it: what every way to write a table is compared with.

Choosing ways and surroundings belongs to `test_ways_to_write.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import Applied, CommitInfo
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.rows.change import FIRST, AllRows, NetChange, Removed, Unsupported
from lakeproof.lake.rows.columns import col
from tests.properties.cycles.linked_batches import LandedBatch, commit_by_links, land_batch

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
ODD = [
    "",
    "a'b",
    'a"b',
    "x\\y",
    "`q`",
    "日本",
    "🙂",
    "tab\tnew\nline",
    "NULL",
    " ",
    "%_",
    "$1 \\n",
    "\u0000",
    "é",
    "e\u0301",
]
# Of the keys that a batch deletes, those that the dictionary has are presupposed.
BY_THE_MODEL = -1
_ARROW = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "timestamp_ntz": pa.timestamp("us"),
}
# The ends of what there is, the last moment before the epoch, and one in the hour that summer time leaves out.
_MOMENTS = [
    datetime(1, 1, 1),  # noqa: DTZ001  without a zone
    datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  as above
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  as above
    datetime(2020, 3, 29, 2, 30),  # noqa: DTZ001  as above
]
Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of table; `key` are the first of `columns`, (name, Spark type)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: int
    null_safe: bool = False
    cluster: bool = False
    files: int = 1

    @property
    def ddl(self) -> str:
        """The columns for `createDataFrame`."""
        return ", ".join(f"`{n}` {t}" for n, t in self.columns)

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [n for n, _ in self.columns]


V = ("v", "string")
COMPOSITE = Kind(
    "composite", (("a", "int"), ("b b", "string"), V, ("d", "double"), ("t", "timestamp_ntz")), 2, null_safe=True
)
TEXT = Kind("text", (("k", "string"), V, ("n", "bigint")), 1)
KINDS = [
    COMPOSITE,
    TEXT,
    Kind("number", (("id", "bigint"), V), 1, files=3),
    Kind("nulls", (("k", "string"), V), 1, null_safe=True),
    Kind("bytes", (("k", "binary"), V), 1),
    Kind("flag", (("k", "boolean"), ("l", "bigint"), V), 2),
    Kind("moment", (("k", "timestamp_ntz"), ("id", "bigint"), ("t", "timestamp_ntz")), 2),
    Kind("clustered", (("id", "bigint"), V), 1, cluster=True),
    Kind("many files", (("id", "bigint"), V), 1, files=60),
]


class Way(Enum):
    """The way in which a batch is written: Spark's keys are few (collected) or many (joined), or files are linked."""

    FEW = "few keys"
    MANY = "many keys"
    LINK = "links"


@dataclass(slots=True)
class Batch:
    """Keys that go and rows that come; `inserts_only`: nobody looks for keys."""

    deletes: list[Key]
    images: list[Row]
    truncate: bool = False
    inserts_only: bool = False


@dataclass(slots=True)
class Table:
    """A Delta table and its dictionary, written in one way; `portable` as in a `TableSpec`.

    With LINK what can't be linked is written as FEW does: `linked` counts the commits by links that were asked for files,
    `not_linked` has the reasons of the others.
    """

    session: SparkSession
    path: str
    kind: Kind
    way: Way
    rng: random.Random
    rows: dict[Key, Row] = field(default_factory=dict)
    version: int = -1
    number: int = 0
    states: dict[int, dict[Key, Row]] = field(default_factory=dict)
    portable: bool = False
    linked: int = 0
    not_linked: list[str] = field(default_factory=list)
    landed: tuple[Batch, LandedBatch] | None = None

    def value(self, spark_type: str) -> Any:
        """Return a value of a type, out of a few, so that keys come back."""
        rng = self.rng
        match spark_type:
            case "bigint" | "int":
                return rng.choice([rng.randrange(60), rng.randrange(60), -(1 << 31), (1 << 31) - 1])
            case "binary":
                return rng.choice([b"", b"\x00'\\", bytes([rng.randrange(256), rng.randrange(4)])])
            case "boolean":
                return rng.random() < 0.5
            case "double":
                return rng.choice([0.0, -0.0, 1.5, float("inf"), 5e-324])
            case "timestamp_ntz":
                return rng.choice([*_MOMENTS, datetime(2020, 1, rng.randrange(1, 29))])  # noqa: DTZ001  without a zone
            case _:
                return rng.choice([*ODD, *(f"v{rng.randrange(30)}" for _ in ODD)])

    def key(self) -> Key:
        """A random key; with NULLs if they are keys."""
        types = [t for _, t in self.kind.columns[: self.kind.key]]
        return tuple(None if self.kind.null_safe and self.rng.random() < 0.2 else self.value(t) for t in types)

    def row(self, key: Key) -> Row:
        """A random row under a key."""
        rest = [t for _, t in self.kind.columns[self.kind.key :]]
        return (*key, *(None if self.rng.random() < 0.2 else self.value(t) for t in rest))

    def batch(self, size: int) -> Batch:
        """A random one: a mix, deletes only, inserts only, everything goes (all by name, or by a wipe), a refill."""
        rng = self.rng
        keys = {self.key() for _ in range(size)}
        match rng.choice(["mix", "mix", "mix", "deletes", "inserts", "empty", "wipe", "refill"]):
            case "deletes":
                return Batch(sorted(keys, key=repr), [])
            case "inserts":
                new = [k for k in keys if k not in self.rows]
                return Batch(new, [self.row(k) for k in new])
            case "empty":
                return Batch(list(self.rows), [])
            case "wipe":
                return Batch([], [], truncate=True)
            case "refill":
                return Batch([], [self.row(k) for k in keys], truncate=True)
        gone = list(keys)
        return Batch(gone, [self.row(k) for k in gone if rng.random() < 0.7])

    def commit_info(self, number: int) -> CommitInfo:
        """The identity of a commit."""
        return CommitInfo("conformance", number, f'{{"cycle": {number}}}')

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: int | None = None) -> DataFrame:
        """Rows of the first `columns` columns."""
        schema = ", ".join(f"`{n}` {t}" for n, t in self.kind.columns[:columns])
        # A table of Arrow stays on the driver: no job reads it.
        return self.session.createDataFrame(self.arrow(rows, columns), schema)

    def arrow(self, rows: Sequence[tuple[Any, ...]], columns: int | None = None) -> pa.Table:
        """Return the same without Spark."""
        chosen = self.kind.columns[:columns]
        arrays = [pa.array([row[i] for row in rows], _ARROW[t]) for i, (_, t) in enumerate(chosen)]
        return pa.table(arrays, names=[n for n, _ in chosen])

    def keys(self, keys: Sequence[Key]) -> DataFrame:
        """Keys that go, each with a number if the dictionary has a row of it."""
        kind = replace(self.kind, columns=(*self.kind.columns[: self.kind.key], (FIRST, "bigint")))
        numbered = [(*key, 100 + n if key in self.rows else None) for n, key in enumerate(keys)]
        return replace(self, kind=kind).frame(numbered)

    def create(self, rows: Sequence[Row]) -> None:
        """The first commit; a clustered table is made empty by SQL before."""
        if self.kind.cluster:
            self.session.sql(
                f"CREATE TABLE delta.`{self.path}` ({self.kind.ddl}) USING delta CLUSTER BY (`{self.kind.names[0]}`)"
                f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(not self.portable).lower()}')"
            )
            self.version = 0
        batch, images = Batch([], list(rows)), self.frame(rows).repartition(self.kind.files)
        self.take(batch, self._apply(batch, NetChange(images=images), create=TableSpec(portable=self.portable)))

    def send(self, batch: Batch, *, presupposed: int | None = BY_THE_MODEL) -> Applied:
        """Commit a batch, and what it presupposes; the model follows once it is committed."""
        if presupposed == BY_THE_MODEL:
            presupposed = 0 if batch.truncate else sum(k in self.rows for k in batch.deletes)
        removed: Removed[DataFrame] | AllRows | None = None
        if batch.truncate:
            removed = AllRows(presupposed or 0)
        elif not batch.inserts_only:
            key = tuple(self.kind.names[: self.kind.key])
            removed = Removed(key, self.keys(batch.deletes), self.kind.null_safe, presupposed)
        images = self.frame(batch.images) if batch.images or batch.truncate else None
        bound = None if self.way is Way.MANY else max(1, len(batch.deletes))
        applied = self._apply(batch, NetChange(removed, images), max_keys=bound)
        self.take(batch, applied)
        return applied

    def _apply(self, batch: Batch, change: NetChange[DataFrame], **options: Any) -> Applied:
        info = self.commit_info(self.number + 1)
        request = CommitRequest(self.path, change, info, expected_version=self.version, **options)
        return self.commit(batch, request)

    def commit(self, batch: Batch, request: CommitRequest) -> Applied:
        """Make a commit of the batch in the table's way, whatever the model knows of it."""
        if self.way is not Way.LINK:
            return apply_change(self.session, request)
        landed, columns, before = self._land(batch), dict(self.kind.columns), self._files()
        try:
            applied = commit_by_links(request, landed, columns)
        except Unsupported as error:
            self.not_linked.append(str(error))
        else:
            self.linked += bool(landed.links)
            return applied
        assert self._files() == before, f"{self.kind.name}: files are left: {self.not_linked[-1]}"
        return apply_change(self.session, request)

    def _land(self, batch: Batch) -> LandedBatch:
        if self.landed is None or self.landed[0] is not batch:
            # Rows with the keys of the table's, and of the batch's own, are in the files and not in the table.
            keys = [self.key(), *self.rows, *(row[: self.kind.key] for row in batch.images)]
            others = [] if self.portable else [self.row(self.rng.choice(keys)) for _ in range(self.rng.randrange(9))]
            folder = Path(self.path).parent / f"{Path(self.path).name}-landing"
            images = land_batch(self.rng, folder, self.arrow(batch.images), self.arrow(others))
            self.landed = batch, images
        return self.landed[1]

    def _files(self) -> set[str]:
        return {place.name for place in Path(self.path).glob("*.parquet")}

    def take(self, batch: Batch, applied: Applied) -> None:
        """The model's turn: the counts must be those of the dictionary."""
        gone = [k for k in batch.deletes if k in self.rows]
        if not batch.truncate:
            assert (applied.inserted, applied.deleted) == (len(batch.images), len(gone)), self.kind.name
        for key in list(self.rows) if batch.truncate else gone:
            del self.rows[key]
        for row in batch.images:
            self.rows[row[: self.kind.key]] = row
        self.number += 1
        self.version = applied.version
        self.states[applied.version] = dict(self.rows)

    def check(self, version: int | None = None) -> None:
        """The table, now or at a version, is the dictionary."""
        position = self.version if version is None else version
        frame = self.session.read.format("delta").option("versionAsOf", position).load(self.path)
        actual = sorted(repr(tuple(bytes(v) if isinstance(v, bytearray) else v for v in r)) for r in frame.collect())
        assert actual == sorted(repr(r) for r in self.states[position].values()), (
            f"{self.kind.name} at version {position}"
        )
        self._check_bounds(frame, position)

    def _check_bounds(self, frame: DataFrame, version: int) -> None:
        """The answers that Delta takes from statistics alone are right too: the count, and bounds of whole numbers."""
        rows = list(self.states[version].values())
        whole = [n for n, (_, of) in enumerate(self.kind.columns) if of in {"int", "bigint"}]
        asked = [make(col(self.kind.names[n])) for n in whole for make in (F.min, F.max)]
        values = [[row[n] for row in rows if row[n] is not None] for n in whole]
        expected = [make(column) if column else None for column in values for make in (min, max)]
        assert list(frame.agg(F.count(F.lit(1)), *asked).collect()[0]) == [len(rows), *expected], self.kind.name
