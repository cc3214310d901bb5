"""Opening the lake without Spark: at the newest cuts, at others, or as fresh as its landing.

Reading what was opened belongs to `frames` and `landed_frames`, reading with Spark to `open`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, overload

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.lake.planning.landing_end import LANDING, landing_ends
from lakeproof.lake.read.frames import ReadLake
from lakeproof.lake.read.landed_frames import LandedReadLake
from lakeproof.lake.records.cut_choice import NEWEST, At, cuts_at


@overload
def read_lake(
    lake: Config | LakeLocation | str | Path, at: Literal["landing"], *, group: str | None = None
) -> LandedReadLake: ...
@overload
def read_lake(
    lake: Config | LakeLocation | str | Path, at: At | Mapping[str, At] = NEWEST, *, group: str | None = None
) -> ReadLake: ...
def read_lake(
    lake: Config | LakeLocation | str | Path, at: At | Mapping[str, At] = NEWEST, *, group: str | None = None
) -> ReadLake:
    """Open a lake to be read without Spark; the arguments and errors are those of `lakeproof.open`.

    At the `landing`, tables that have a key of exact columns can be read; others raise LakeError if they have changes.
    """
    place = location_of(lake)
    if at == LANDING:
        cuts = cuts_at(lake, NEWEST, group)
        return LandedReadLake(place, cuts, landing_ends(place, cuts, group))
    return ReadLake(place, cuts_at(lake, at, group))
