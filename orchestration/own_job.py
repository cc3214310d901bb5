"""The job for whose run Dagster has started this process, so that the process makes that job's assets and no other.

What a job needs does not belong here (`build.py`). Dagster's launchers that begin a container name the job in its
environment; its default launcher passes the job to a process that it spawns.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Mapping

VARIABLE = "DAGSTER_RUN_JOB_NAME"


def own_job(environ: Mapping[str, str] = os.environ, arguments: Iterable[object] | None = None) -> str | None:
    """Return the job's name; None in a code server and in any process that was not started for a run."""
    if VARIABLE in environ:
        return environ[VARIABLE]
    given = getattr(multiprocessing.current_process(), "_args", ()) if arguments is None else arguments
    # `ReconstructableJob` is not imported for this: a code server would load what executes runs.
    jobs = (each for each in given if type(each).__name__ == "ReconstructableJob")
    return next((str(getattr(job, "job_name", "")) or None for job in jobs), None)
