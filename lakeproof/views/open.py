"""Reading several views at one point: the cuts of one refresh, which took each source's cut once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import LakeError
from lakeproof.lake.delta.versions import read_view
from lakeproof.lake.records.views.cuts import ViewCut, newest_first
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class OpenedViews:
    """Views pinned at `cuts`, all of one refresh."""

    spark: SparkSession
    lake: LakeLocation
    cuts: Mapping[str, ViewCut]

    @property
    def sources(self) -> dict[str, CycleNumber]:
        """The cut of each source that the views were computed at."""
        return {source: number for cut in self.cuts.values() for source, number in cut.sources.items()}

    def view(self, name: str) -> DataFrame:
        """Return a view's rows, without hidden columns; raises LakeError for one that was not opened."""
        cut = self.cuts.get(name)
        if cut is None:
            raise LakeError(f"view {name}", "it was not opened", f"open it with {', '.join(sorted(self.cuts))}")
        return read_view(self.spark, open_store(self.lake), cut)


def open_views(spark: SparkSession, lake: Config | LakeLocation | str | Path, names: Iterable[str]) -> OpenedViews:
    """Open the views at the newest refresh that brought all of them to one point; raises LakeError if there is none."""
    place = location_of(lake)
    return OpenedViews(spark, place, newest_together(open_store(place), names))


def newest_together(store: Store, names: Iterable[str]) -> dict[str, ViewCut]:
    """Return the views' cuts of the newest refresh that has one of each; raises LakeError if there is none.

    Cost: reads the views' cuts backwards until it has them.
    """
    requested = set(names)
    refreshes: dict[int, dict[str, ViewCut]] = {}
    for cut in newest_first(store):
        if cut.view in requested:
            together = refreshes.setdefault(cut.refresh, {})
            together.setdefault(cut.view, cut)
            if together.keys() == requested:
                return together
    raise LakeError(
        f"views {', '.join(sorted(requested))}",
        "no refresh that is kept has brought all of them to one point",
        "run `lakeproof refresh`, which takes all views",
    )
