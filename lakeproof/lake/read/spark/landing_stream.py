"""A Spark stream of what lands: its offsets are positions, and a batch has whole transactions of all tables.

A stream of cuts belongs to `subscribe`, which starts this one, too; transactions without Spark to `transactions`.

    checkpoint: 0/16B3748 → 0/16B4010      batch: `deliver(the transactions that ended in between)`

An offset has the incarnation, since another one counts positions anew: then the stream ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.errors import RECOVER, LakeError
from lakeproof.lake.read.arrow.transactions import (
    LOOK_EVERY_S,
    LOOKS_PER_INCARNATION,
    Transaction,
    begins_at,
    landed_transactions,
    position_of,
)
from lakeproof.lake.records.cuts.choice import table_name
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from typing_extensions import Required

FORMAT = "lakeproof_landing"
SEGMENTS_PER_BATCH = 100


class LandingOptions(TypedDict, total=False):
    """The keyword arguments of `subscribe` for a stream of the landing.

    `since`: a new stream begins after this position (by default with the oldest transaction that is kept).
    `segments_per_batch`: the most segments of one batch. `available_now`: the stream ends once it has delivered what had
    landed at its start.
    """

    from_landing: Required[Literal[True]]
    since: Lsn | str
    segments_per_batch: int
    available_now: bool


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """The transactions of a source that ended after `first`, up to and including `last`."""

    lake: SourceLake
    incarnation: Incarnation
    first: Lsn
    last: Lsn

    def transactions(self, tables: Sequence[TableName | str] | None = None) -> Iterator[Transaction]:
        """Yield them whole and in commit order, those of `tables` alone if given; may be called again.

        Raises LakeError if they are not kept any more.
        """
        chosen = None if tables is None else {table_name(table) for table in tables}
        return landed_transactions(Chain.open(self.lake, self.incarnation), self.first, self.last, chosen)


def start_stream(
    spark: SparkSession,
    lake: SourceLake,
    deliver: Callable[[LandedBatch], None],
    checkpoint: str | Path,
    options: LandingOptions,
) -> StreamingQuery:
    """Start a stream that calls `deliver` with each batch; the arguments are those of `subscribe`."""
    place, source = lake.store.location, lake.source
    since = position_of(options.get("since"))
    spark.dataSource.register(LandingSource)
    landed = spark.readStream.format(FORMAT).options(
        lake=place.url,
        storage=place.storage.model_dump_json(),
        source=source,
        since="" if since is None else str(int(since)),
        segments_per_batch=options.get("segments_per_batch", SEGMENTS_PER_BATCH),
    )

    def batch(frame: DataFrame, _: int) -> None:
        for incarnation, first, last in frame.collect():
            deliver(LandedBatch(SourceLake.open(place, source), Incarnation(incarnation), Lsn(first), Lsn(last)))

    stream = landed.load().writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
    if options.get("available_now", False):
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{int(LOOK_EVERY_S * 1000)} milliseconds").start()


class LandingSource(DataSource):
    """A stream with one row per batch: the incarnation, and the positions that the batch goes from and to."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "incarnation bigint, first bigint, last bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        del schema
        return LandingReader(dict(self.options))


class Span(InputPartition):
    """The positions of one batch."""

    def __init__(self, incarnation: int, first: int, last: int) -> None:
        super().__init__((incarnation, first, last))
        self.incarnation, self.first, self.last = incarnation, first, last


class LandingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are positions of an incarnation. Runs in a process of Python's own, without a Spark session."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.chain: Chain | None = None
        self.looks = 0
        self.until: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        chain, since = self._newest(), self.options["since"]
        begin = begins_at(chain, Lsn(int(since)) if since else None)
        return {"incarnation": int(chain.incarnation), "position": int(begin)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        return ReadMaxRows(int(self.options["segments_per_batch"]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        self.until = int(self._newest().end)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  Spark's name
        chain, reached = self._newest(), int(start["position"])
        if int(start["incarnation"]) != chain.incarnation:
            reason = f"its slot was lost, and incarnation {chain.incarnation} has begun; changes may be missing"
            remedy = f"compact, read the tables at the newest cut, and begin a stream with its position ({RECOVER})"
            raise LakeError(f"{chain.lake.source}: incarnation {start['incarnation']}", reason, remedy)
        end = int(chain.end) if self.until is None else self.until
        if isinstance(limit, ReadMaxRows):
            if reached < end:
                last = min(chain.number_after(Lsn(reached)) + limit.max_rows - 1, chain.newest.number)
                end = min(end, int(chain.manifest(last).end_lsn))
        elif not isinstance(limit, ReadAllAvailable):
            raise TypeError(type(limit).__name__)
        return {**start, "position": max(reached, end)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = int(start["position"]), int(end["position"])
        return [Span(int(end["incarnation"]), first, last)] if first < last else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int]]:
        if not isinstance(partition, Span):
            raise TypeError(type(partition).__name__)
        yield partition.incarnation, partition.first, partition.last

    def _newest(self) -> Chain:
        """Return the newest chain up to its newest segment: a look-up, unless the reader has just begun."""
        storage = StorageConfig.model_validate_json(self.options["storage"])
        lake = SourceLake.open(LakeLocation(self.options["lake"], storage), self.options["source"])
        self.looks += 1
        # Another incarnation takes a listing to see, and comes once in years.
        is_due = self.looks % LOOKS_PER_INCARNATION == 0
        if self.chain is None or (is_due and newest_incarnation(lake) != self.chain.incarnation):
            self.chain = Chain.open_newest(lake)
        else:
            self.chain.refresh()
        if self.chain is None:
            raise no_landing(lake)
        return self.chain
