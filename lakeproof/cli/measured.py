"""Leaves metrics of a command that has ended in files, if the configuration names a folder for them.

The files do not belong here (`lakeproof.metrics.text_file`). They never change how a command ends: what goes wrong with them
is an event.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeproof.cli.results import REFUSED
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Report

if TYPE_CHECKING:
    from lakeproof.cli.context import Context

# Commands that work on one source or group. Those that go on serve their metrics while they do.
_MEASURED = frozenset({"bootstrap", "drain", "recover", "compact", "maintain", "prove"})


class Measured:
    """One run of a command: its duration, exit status and the changes of its events."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._changes = 0
        self.exit_status = REFUSED

    def observed(self, report: Report) -> Report:
        """Return a report that counts the changes that a drain lands or a compaction applies."""
        counts = {"drain.flush": "rows", "compact.cut": "changes"}

        def observed(event: Event) -> None:
            if event.kind in counts:
                self._changes += event.fields[counts[event.kind]]
            report(event)

        return observed

    @contextmanager
    def measured(self, context: Context) -> Iterator[None]:
        """Run the block, then write the files, however it has ended."""
        began_s = time.monotonic()
        try:
            yield
        except LakeproofError as error:
            self.exit_status = error.exit_status
            raise
        finally:
            if self._args.command in _MEASURED and context.has_config and context.config.metrics.textfile is not None:
                self._write(context, time.monotonic() - began_s)

    def _write(self, context: Context, seconds: float) -> None:
        from lakeproof.metrics.text_file import CommandRun, write_text_files

        try:
            name = getattr(self._args, "group", None) or context.source(self._args.source)
            run = CommandRun(self._args.command, name, seconds, self.exit_status, self._changes)
            write_text_files(context.config, run)
        except (OSError, LakeproofError) as error:
            folder = context.config.metrics.textfile
            context.report(
                Event("metrics.text_file", f"{folder}: metrics were not written: {error}", {"folder": folder})
            )
