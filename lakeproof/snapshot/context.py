"""The context that all parts of one snapshot run share: its source, its lake, the report and the stop flag."""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.config.model import SourceConfig
from lakeproof.events import Event, Report, Stop
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """The source of a run, its place in the lake, who gets the events, and who may end the run."""

    source: SourceConfig
    lake: SourceLake
    report: Report
    stop: Stop

    def emit(self, kind: str, message: str, **fields: object) -> None:
        """Report an event of the source."""
        self.report(Event(kind, message, {"source": self.source.name, **fields}))
