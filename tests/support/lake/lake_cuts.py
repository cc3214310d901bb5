"""The cuts of a lake, read for a comparison.

What they must say belongs to the tests.
"""

from __future__ import annotations

from lakeproof.config.model import Config
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut, read_cut
from lakeproof.names import CycleNumber
from lakeproof.storage.source_lake import SourceLake


def cut_of(config: Config, number: int | None = None) -> Cut:
    """The newest cut, or one."""
    lake = SourceLake.open(config.lake, "shop")
    actual = newest_cut(lake) if number is None else read_cut(lake, CycleNumber(number))
    assert actual is not None
    return actual
