"""Subscribing to a source: a Spark stream of its cuts, or of what lands, which resumes from its checkpoint.

The changes between two cuts belong to `changes`, transactions without Spark to `lakeproof.lake.read.arrow.transactions`.

    checkpoint: offsets 4 → 9              batch: `deliver(changes from cut 4 to cut 9)`, all tables of the source at once
    checkpoint: 0/16B3748 → 0/16B4010      batch: `deliver(the transactions that ended in between)`, whole, of all tables

A batch is whole cuts of the whole source, never a part of one. Spark writes a batch's end to the checkpoint before the batch
runs and the batch's end after it: so a batch that was interrupted is delivered again with the same cuts, and each cut is
delivered at least once, in order, and again only after an interruption. A subscriber that writes the batch's last cut beside
its rows (or as Delta's `txnVersion`) has each cut exactly once.

The offsets of what lands are positions, with the incarnation, since another one counts positions anew: then the stream ends
with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, overload

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.config.model import Config, location_of
from lakeproof.errors import RECOVER, LakeError
from lakeproof.lake.read.arrow.transactions import (
    LOOK_EVERY_S,
    LOOKS_PER_INCARNATION,
    Transaction,
    begins_at,
    landed_transactions,
    position_of,
)
from lakeproof.lake.read.spark.changes import CutChanges, ViewChanges, changes, view_changes
from lakeproof.lake.records.cuts.choice import one_source, table_name
from lakeproof.lake.records.store import newest_number
from lakeproof.lake.records.views.cuts import newest_view_cut
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack


_LANDING = "lakeproof_landing"
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
    landed = spark.readStream.format(_LANDING).options(
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
        return _LANDING

    def schema(self) -> str:
        return "incarnation bigint, first bigint, last bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        del schema
        return LandingReader(dict(self.options))


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
        return [InputPartition((int(end["incarnation"]), first, last))] if first < last else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int]]:
        yield partition.value

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


_CUTS = "lakeproof_cuts"
CUTS_PER_BATCH = 10


class SubscribeOptions(TypedDict, total=False):
    """The keyword arguments of `subscribe` that few streams need.

    `first`: a new stream begins after this cut (0, the default: from the beginning). `cuts_per_batch`: the most cuts of one
    batch. `available_now`: the stream ends once it has delivered the cuts that existed at its start.
    """

    first: int
    cuts_per_batch: int
    available_now: bool


class ViewOptions(SubscribeOptions, total=False):
    """The keyword arguments of `subscribe` for a view's changes: as `SubscribeOptions`, about the view's cuts."""

    view: Required[str]


@overload
def subscribe(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    deliver: Callable[[LandedBatch], None],
    *,
    checkpoint: str | Path,
    source: str | None = None,
    **options: Unpack[LandingOptions],
) -> StreamingQuery: ...
@overload
def subscribe(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    deliver: Callable[[ViewChanges], None],
    *,
    checkpoint: str | Path,
    **options: Unpack[ViewOptions],
) -> StreamingQuery: ...
@overload
def subscribe(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    deliver: Callable[[CutChanges], None],
    *,
    checkpoint: str | Path,
    source: str | None = None,
    **options: Unpack[SubscribeOptions],
) -> StreamingQuery: ...
def subscribe(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    deliver: Callable[[Any], None],
    *,
    checkpoint: str | Path,
    source: str | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start a stream that calls `deliver` with each batch of new cuts, in order; `from_landing`: of new transactions.

    A stream that has a checkpoint goes on from there. The options are those of `SubscribeOptions`; with `from_landing=True`
    those of `LandingOptions`, and a batch is a `LandedBatch`; with `view` those of `ViewOptions`, and a batch has the view's
    changes. `deliver` is called on the driver; an error that it raises ends the stream, and the batch is delivered again.
    Raises ConfigError if `source` must be named.
    """
    if "view" in options:
        return _start(spark, location_of(lake), deliver, checkpoint, cast(ViewOptions, options))
    source_lake = one_source("subscribe", lake, source)
    if options.get("from_landing", False):
        return start_stream(spark, source_lake, deliver, checkpoint, cast(LandingOptions, options))
    return _start(spark, source_lake, deliver, checkpoint, cast(SubscribeOptions, options))


def _start(
    spark: SparkSession,
    of: SourceLake | LakeLocation,
    deliver: Callable[[Any], None],
    checkpoint: str | Path,
    options: SubscribeOptions | ViewOptions,
) -> StreamingQuery:
    """Start a stream of a source's cuts, or of those of the view that the options name."""
    place, source = (of.store.location, of.source) if isinstance(of, SourceLake) else (of, "")
    view = str(options.get("view", ""))
    spark.dataSource.register(CutSource)
    cuts = spark.readStream.format(_CUTS).options(
        lake=place.url,
        storage=place.storage.model_dump_json(),
        source=source,
        view=view,
        first=options.get("first", 0),
        cuts_per_batch=options.get("cuts_per_batch", CUTS_PER_BATCH),
    )

    def batch(frame: DataFrame, _: int) -> None:
        ends = [(int(r[0]), int(r[1])) for r in frame.select("first", "last").collect()]
        for begin, end in ends:
            if view:
                deliver(view_changes(frame.sparkSession, place, view, begin, end))
            else:
                deliver(changes(frame.sparkSession, place, begin, end, source=source))

    stream = cuts.load().writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
    if options.get("available_now", False):
        stream = stream.trigger(availableNow=True)
    return stream.start()


class CutSource(DataSource):
    """A stream with one row per batch: the cuts that the batch goes from and to."""

    @classmethod
    def name(cls) -> str:
        return _CUTS

    def schema(self) -> str:
        return "first bigint, last bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        del schema
        return CutReader(dict(self.options))


class CutReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are cuts' numbers. Runs in a process of Python's own, without a Spark session."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.until: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        return {"cut": int(self.options["first"])}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        return ReadMaxRows(int(self.options["cuts_per_batch"]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        self.until = self._newest()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  Spark's name
        reached = int(start["cut"])
        end = self._newest() if self.until is None else self.until
        if isinstance(limit, ReadMaxRows):
            end = min(end, reached + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise TypeError(type(limit).__name__)
        return {"cut": max(reached, end)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = int(start["cut"]), int(end["cut"])
        return [InputPartition((first, last))] if first < last else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        yield partition.value

    def _newest(self) -> int:
        storage = StorageConfig.model_validate_json(self.options["storage"])
        place = LakeLocation(self.options["lake"], storage)
        if self.options["view"]:
            cut = newest_view_cut(open_store(place), self.options["view"])
            return 0 if cut is None else int(cut.number)
        lake = SourceLake.open(place, self.options["source"])
        return int(newest_number(lake.store, lake.paths.cuts))
