"""The location of a configuration file: which file, for whose run, and the component with all of its sources, by itself.

A process that Dagster has started for a run makes the assets of that run's job and no other; `build.py` has the needs of a
job. Dagster's launchers that begin a container name the job in its environment; its default launcher passes the job to a
process that it spawns.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from lakeproof.config.load import DEFAULT_NAME, VARIABLE
from orchestration.component import SourceComponent

_log = logging.getLogger("lakeproof.dagster")
# New objects between two looks for garbage; Python's own 700 is for a process that makes few.
_GC = (50_000, 20, 100)


def location(path: Path | None, job: str | None = None) -> dg.Definitions:
    """Return the location of a configuration file, or what a run of `job` needs; without a file, an empty one that says why.

    Raises ConfigError, with every mistake, for a file that is wrong or missing: Dagster shows it in place of the location.
    """
    if path is None:
        _log.warning("this location is empty: %s", HINT)
        return dg.Definitions(metadata={"configuration": dg.MetadataValue.text(f"none; {HINT}")})
    # A run of several assets is one process, with one JVM at most, and not one for each.
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
        # Dagster goes on with millions of objects that stay: a sixth of its time was spent on looking at them.
        gc.set_threshold(*_GC)


# The folder of workspace.yaml.
ROOT = Path(__file__).resolve().parent.parent

HINT = f"set {VARIABLE} to a configuration file, or put {DEFAULT_NAME} into {ROOT}, then reload this location"


def configuration_path() -> Path | None:
    """Return the file that LAKEPROOF_CONFIG names, else `lakeproof.yaml` at the root, else None.

    A file that LAKEPROOF_CONFIG names is returned even if it is missing: loading nothing would hide the mistake.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named).expanduser().absolute()
    default = ROOT / DEFAULT_NAME
    return default if default.is_file() else None


# The job for whose run a container was begun.
RUN_JOB = "DAGSTER_RUN_JOB_NAME"


def own_job(environ: Mapping[str, str] = os.environ, arguments: Iterable[object] | None = None) -> str | None:
    """Return the name of the job for whose run this process is; None in a code server, and in any other process."""
    if RUN_JOB in environ:
        return environ[RUN_JOB]
    given = getattr(multiprocessing.current_process(), "_args", ()) if arguments is None else arguments
    # `ReconstructableJob` is not imported for this: a code server would load what executes runs.
    jobs = (each for each in given if type(each).__name__ == "ReconstructableJob")
    return next((str(getattr(job, "job_name", "")) or None for job in jobs), None)
