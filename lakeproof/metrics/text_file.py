"""Writes the metrics of a command that has ended as files for a textfile collector, which reads a folder at each scrape.

Serving them does not belong here (`server.py`): a command that has ended serves nothing.

    lakeproof_command_<command>_<source>.prom     how the command ended
    lakeproof_lake_<source>.prom                  the lake as it is then, whichever command was the last

Each metric of a source is in one file only, since a collector refuses a value that it finds twice.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakeproof.config.model import Config
from lakeproof.metrics import definitions as m
from lakeproof.metrics.lake_state import LakeSamples
from lakeproof.metrics.samples import Registry, Sample

# Everybody may read a collector's files; the collector runs as another user.
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of a command on a source or a group, and the changes that it landed or applied."""

    command: str
    source: str
    seconds: float = 0.0
    exit_status: int = 0
    changes: int = 0

    def __call__(self) -> Iterator[Sample]:
        labels = {"command": self.command, "source": self.source}
        values: dict[m.Metric, float] = {
            m.COMMAND_SECONDS: self.seconds,
            m.COMMAND_STATUS: self.exit_status,
            m.COMMAND_END: time.time(),
            m.COMMAND_CHANGES: self.changes,
        }
        yield from (Sample(metric, value, labels) for metric, value in values.items())


def write_text_files(config: Config, run: CommandRun) -> None:
    """Write the files of a run, each at once or not at all; raises OSError if the folder can't be written to."""
    if config.metrics.textfile is None:
        return
    folder = Path(config.metrics.textfile)
    _write(folder / f"lakeproof_command_{run.command}_{run.source}.prom", Registry(run).text())
    for source in config.groups.get(run.source, (run.source,)):
        if source in config.sources:
            _write(folder / f"lakeproof_lake_{source}.prom", Registry(LakeSamples(config, source)).text())


def _write(file: Path, text: bytes) -> None:
    # The collector takes only files that end with .prom.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), _MODE)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink()
        raise
