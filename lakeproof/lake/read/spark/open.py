"""Opening the lake with Spark: every table of every source at one cut of its source, or as fresh as its landing.

Reading what was opened belongs to `opened` and `landed`, positions between cuts to `as_of`, writing to `lake.cycle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, overload

from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.lake.planning.landing.end import LANDING, landing_ends
from lakeproof.lake.read.landed import LandedLake
from lakeproof.lake.read.spark.opened import OpenedLake
from lakeproof.lake.records.cuts.choice import NEWEST, At, cuts_at


@overload
def open_lake(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    at: Literal["landing"],
    *,
    group: str | None = None,
) -> LandedLake: ...
@overload
def open_lake(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    at: At | Mapping[str, At] = NEWEST,
    *,
    group: str | None = None,
) -> OpenedLake: ...
def open_lake(
    spark: SparkSession,
    lake: Config | LakeLocation | str | Path,
    at: At | Mapping[str, At] = NEWEST,
    *,
    group: str | None = None,
) -> OpenedLake:
    """Open the lake of a configuration, or in a folder: at the newest cuts, or at the newest ones that do not go past `at`.

    `at` is `newest`, a position (an `Lsn` or its text), a cut's number (that very cut), or a time: then the cut has nothing
    that the source committed later, by the source's clock. It may be a mapping from sources; sources that it does not name
    are opened at their newest cut. A position or number belongs to one source: with several sources give a mapping. Raises
    ConfigError for an ambiguous `at`, LakeError if there is no such cut.

    With `group`, the sources of that group alone are opened, at the cuts that one cut of the group names: all at one
    position. `at` is then one value for all, a number that of the group's cut.

    `landing` gives a `LandedLake`: the newest cut and what has landed since, so that a commit is seen about a second later.
    Raises as `landing_ends`.
    """
    place = location_of(lake)
    if at == LANDING:
        cuts = cuts_at(lake, NEWEST, group)
        return LandedLake(spark, place, cuts, landing_ends(place, cuts, group))
    return OpenedLake(spark, place, cuts_at(lake, at, group))
