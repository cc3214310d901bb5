"""The names of the jobs, and the tags by which sensors recognize their runs.

The selections of the jobs do not belong here (`source`, `views`).
"""

from __future__ import annotations

import lakeproof

# On every run that a sensor keeps going, of a drain or a compaction: it leaves runs alone that a person has started.
SENSOR_TAG = "lakeproof/kept_by_sensor"
SOURCE_TAG = "lakeproof/source"
SLOT_TAG = "lakeproof/slot"
JOB_TAG = "lakeproof/job"
VERSION_TAG = "lakeproof/version"

VIEWS_REFRESH = "views_refresh"
VIEWS_REPLACE = "views_replace"
VIEWS_TAKE_BACK = "views_take_back"


def bootstrap_job_name(source: str) -> str:
    """Return `<source>_bootstrap`."""
    return f"{source}_bootstrap"


def drain_job_name(source: str) -> str:
    """Return `<source>_drain`."""
    return f"{source}_drain"


def compaction_job_name(source: str) -> str:
    """Return `<source>_compaction`; the sources of a group have one, by the group's name."""
    return f"{source}_compaction"


def maintenance_job_name(source: str) -> str:
    """Return `<source>_maintenance`."""
    return f"{source}_maintenance"


def slot_job_name(source: str) -> str:
    """Return `<source>_slot`."""
    return f"{source}_slot"


def verification_job_name(source: str) -> str:
    """Return `<source>_verification`."""
    return f"{source}_verification"


def repair_job_name(source: str) -> str:
    """Return `<source>_repair`."""
    return f"{source}_repair"


def rebuild_job_name(source: str) -> str:
    """Return `<source>_rebuild`."""
    return f"{source}_rebuild"


def recover_job_name(source: str) -> str:
    """Return `<source>_recover`."""
    return f"{source}_recover"


def teardown_job_name(source: str) -> str:
    """Return `<source>_teardown`."""
    return f"{source}_teardown"


def pause_job_name(source: str) -> str:
    """Return `<source>_pause`."""
    return f"{source}_pause"


def resume_job_name(source: str) -> str:
    """Return `<source>_resume`."""
    return f"{source}_resume"


def daily_job_name(source: str) -> str:
    """Return `<source>_daily`."""
    return f"{source}_daily"


def run_tags(kind: str, **more: str) -> dict[str, str]:
    """Return the tags of every run of a job: its kind, the version, and `source` and `slot`, if it has them."""
    names = {"source": SOURCE_TAG, "slot": SLOT_TAG}
    return {JOB_TAG: kind, VERSION_TAG: lakeproof.__version__, **{names[name]: value for name, value in more.items()}}
