"""Follows the newest cut of a source: one look-up for each look, and no listing while cuts are made.

What a cut says does not belong here (`documents.py`), nor how often somebody looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut, read_cut
from lakeproof.names import CycleNumber
from lakeproof.storage.source_lake import SourceLake

# Cuts are listed again this often: after a long pause, the next one may have been removed, and newer ones are there.
_LIST_S = 300.0


@dataclass(slots=True)
class CutTail:
    """The newest cut that was seen; not for several threads at a time."""

    lake: SourceLake
    cut: Cut | None = None
    clock: Callable[[], float] = time.monotonic
    _listed_s: float | None = None

    def look(self) -> Cut | None:
        """Return the newest cut, None if there is none yet; raises LakeError for a damaged one."""
        now_s = self.clock()
        if self.cut is None or self._listed_s is None or now_s - self._listed_s >= _LIST_S:
            self._listed_s, self.cut = now_s, newest_cut(self.lake)
            return self.cut
        number = self.cut.number
        while self.lake.store.exists(self.lake.paths.cut(CycleNumber(number + 1))):
            number = CycleNumber(number + 1)
        if number != self.cut.number:
            self.cut = read_cut(self.lake, number)
        return self.cut
