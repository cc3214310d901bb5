"""What the jobs are called, and the tags by which sensors know their runs.

What a job selects belongs to `source` and `views`.
"""

from __future__ import annotations

# Carried by the runs that the keeper started: a person's own drain is not its business.
KEEPER_TAG = "lakeproof/keeper"
SOURCE_TAG = "lakeproof/source"
SLOT_TAG = "lakeproof/slot"

VIEWS_REFRESH = "views_refresh"


def bootstrap_job_name(source: str) -> str:
    """`<source>_bootstrap`."""
    return f"{source}_bootstrap"


def drain_job_name(source: str) -> str:
    """`<source>_drain`."""
    return f"{source}_drain"


def compaction_job_name(source: str) -> str:
    """`<source>_compaction`."""
    return f"{source}_compaction"


def maintenance_job_name(source: str) -> str:
    """`<source>_maintenance`."""
    return f"{source}_maintenance"


def slot_job_name(source: str) -> str:
    """`<source>_slot`."""
    return f"{source}_slot"


def verification_job_name(source: str) -> str:
    """`<source>_verification`."""
    return f"{source}_verification"
