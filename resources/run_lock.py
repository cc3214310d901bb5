"""The lock that a job's runs hold while their processes live: it distinguishes a killed run from a working one.

`orchestration.policies.run` draws the conclusions; the engine's own locks keep two writers out of the lake.

Dagster reports STARTED for ever for a run whose process was killed. The lock is freed at that moment, and not before: a run
that freed the lock while it ends would be taken for a dead one. The lock is shared: several runs of a job may live at once,
and the engine says which of them waits.
"""

from __future__ import annotations

import logging

from lakeproof.config.location import LakeLocation
from lakeproof.errors import LakeproofError
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Lock

_log = logging.getLogger("lakeproof.dagster")
# A probe in `has_live_process` takes microseconds; a process that has the lock for longer keeps it, and must not stop a run.
_ATTEMPT_S = 5.0

# A process that makes several runs, as tests do, needs one lock for all runs of a job; by the lock's URL.
_locks: dict[str, Lock] = {}


def hold_run_lock(lake: LakeLocation | str, job: str, attempt_s: float = _ATTEMPT_S) -> None:
    """Hold the lock of `job`'s runs until this process ends; raise OSError if the lake can't be written to."""
    store, key = open_store(lake), LakePaths.run_lock(job)
    place = store.url(key)
    if place in _locks:
        return
    lock = store.share_lock(key, attempt_s)
    if lock is None:
        _log.warning("%s: another process holds it, so nobody will know whether this run works; see who it is", place)
        return
    _locks[place] = lock


def has_live_process(lake: LakeLocation | str, job: str) -> bool | None:
    """True if a run of `job` has a process; None if that is unknown."""
    try:
        return open_store(lake).is_locked(LakePaths.run_lock(job))
    except (OSError, LakeproofError):
        return None
