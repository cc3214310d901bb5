"""The lock that a job's runs hold while their processes live: it distinguishes a killed run from a working one.

What follows from that does not belong here (`orchestration.policies.run`); the engine's own locks keep two writers out of
the lake.

Dagster reports STARTED for ever for a run whose process was killed. The kernel frees the lock at that moment, and not
before: a run that freed the lock while it ends would be taken for a dead one. The lock is shared: several runs of a job may
live at once, and the engine says which of them waits.
"""

from __future__ import annotations

import logging
from pathlib import Path

from lakeproof.storage.locks import hold_shared, is_locked
from lakeproof.storage.paths import run_lock
from lakeproof.storage.store import make_root

_log = logging.getLogger("lakeproof.dagster")
# A probe in `has_live_process` takes microseconds; a process that has the lock for longer keeps it, and must not stop a run.
_ATTEMPT_S = 5.0

# A process that makes several runs, as tests do, needs one descriptor for all runs of a job.
_held: dict[Path, int] = {}


def hold_run_lock(lake: str, job: str) -> None:
    """Hold the lock of `job`'s runs until this process ends; raise OSError if the lake can't be written to."""
    lock_file = run_lock(lake, job)
    if lock_file in _held:
        return
    make_root(lake)
    descriptor = hold_shared(lock_file, _ATTEMPT_S)
    if descriptor is None:
        _log.warning(
            "%s: another process holds it, so nobody will know whether this run works; see who it is", lock_file
        )
        return
    _held[lock_file] = descriptor


def has_live_process(lake: str, job: str) -> bool | None:
    """True if a run of `job` has a process; None if that is unknown, as before its first run."""
    lock_file = run_lock(lake, job)
    try:
        return is_locked(lock_file) if lock_file.exists() else None
    except OSError:
        return None
