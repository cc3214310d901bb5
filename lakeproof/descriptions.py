"""Keeps comments, whole types, nullability and defaults of a source's tables in its lake, to be shown without its database.

Reading them belongs to `lakeproof.postgres.catalog.descriptions`, the documents to `lakeproof.lake.records.described`,
showing them to Dagster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Report, silent
from lakeproof.lake.records.described import keep_described
from lakeproof.postgres.catalog.descriptions import read_descriptions
from lakeproof.postgres.connections.connect import connect
from lakeproof.storage.source_lake import SourceLake

_EVERY_S = 300.0
# A drain that ends waits no longer for a source that hangs.
_LAST_S = 10.0


def keep_source_descriptions(config: Config, name: str) -> bool:
    """Read the source's descriptions and keep them, if they have changed; return True if they have.

    Raises SourceError, TransientError if the server can't be read, LakeError if the lake can't be written.
    """
    source, lake = config.source(name), SourceLake.open(config.location, name)
    with connect(source.dsn, "lakeproof describe") as connection:
        tables = read_descriptions(connection, source)
    return keep_described(lake, tables)


def describe_quietly(config: Config, name: str, report: Report = silent) -> None:
    """Do the same at the end of something more important: a failure is reported, and not raised."""
    try:
        keep_source_descriptions(config, name)
    except LakeproofError as error:
        report(Event("describe.failed", f"comments and types were not read: {error}", {"source": name}))


@contextmanager
def describing(config: Config, name: str, report: Report) -> Iterator[Report]:
    """Keep the source's descriptions while its drain goes on; gives the report to pass on to that.

    A thread of its own reads them whenever the drain reports a change of the catalog, and now and then: what changes no
    value (NOT NULL, a default, a comment) is no change to a drain.
    """
    changes = SimpleQueue[bool]()

    def describe_each() -> None:
        goes_on = True
        while goes_on:
            goes_on, is_due = _next_reading(changes)
            if is_due:
                describe_quietly(config, name, report)

    def observed(event: Event) -> None:
        if event.kind == "drain.catalog":
            changes.put(True)
        report(event)

    thread = threading.Thread(target=describe_each, name="lakeproof describe", daemon=True)
    thread.start()
    try:
        yield observed
    finally:
        changes.put(False)
        thread.join(_LAST_S)


def _next_reading(changes: SimpleQueue[bool]) -> tuple[bool, bool]:
    """Wait for the next reading, which has all changes so far; return if there is another one after it, and if it is due."""
    try:
        waiting = [changes.get(timeout=_EVERY_S)]
    except Empty:
        return True, True
    while not changes.empty():
        waiting.append(changes.get())
    return all(waiting), any(waiting)
