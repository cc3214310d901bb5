"""The location of a configuration file: the component with all of its sources, by itself.

Choosing the file does not belong here (`find_config`).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from orchestration.component import SourceComponent
from orchestration.find_config import HINT

_log = logging.getLogger("lakeproof.dagster")


def location(path: Path | None, job: str | None = None) -> dg.Definitions:
    """Return the location of a configuration file, or what a run of `job` needs; without a file, an empty one that says why.

    Raises ConfigError, with every mistake, for a file that is wrong or missing: Dagster shows it in place of the location.
    """
    if path is None:
        _log.warning("this location is empty: %s", HINT)
        return dg.Definitions(metadata={"configuration": dg.MetadataValue.text(f"none; {HINT}")})
    # A run of several assets starts one JVM, not one for each.
    executor = dg.Definitions(executor=dg.in_process_executor)
    with _loaded_for_life():
        definitions = SourceComponent(config=str(path)).definitions(path.parent, job)
        return dg.Definitions.merge(definitions, executor)


@contextmanager
def _loaded_for_life() -> Iterator[None]:
    """Keep Python from looking for garbage among definitions, which live as long as the process: a quarter of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
