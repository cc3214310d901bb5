"""Repairing: the tables that a proof finds to differ are corrected, and proved once more.

Comparing does not belong here (`assets.checks.proof`). The job is the proof of the source's tables with `repair` set, so
its run reports proofs and checks as each proof does; it corrects the tables that are selected, and no other.
"""

from __future__ import annotations

import dagster as dg

from assets.checks.proof import ProofRun, proof_op_name
from assets.support.keys import Layer, proof_key, table_key
from jobs.names import repair_job_name, run_tags
from jobs.source import Job
from lakeproof.config.model import SourceConfig


def repair_job(source: SourceConfig) -> Job:
    """Return the job that repairs a source's tables."""
    keys = [proof_key(table_key(Layer.CURRENT, source.name, table)) for table in source.tables]
    return dg.define_asset_job(
        repair_job_name(source.name),
        selection=dg.AssetSelection.assets(*keys),
        config=dg.RunConfig(ops={proof_op_name(source.name): ProofRun(repair=True)}),
        executor_def=dg.in_process_executor,
        tags=run_tags("repair", source=source.name, slot=source.slot),
        description=(
            f"Compares the current tables of {source.name} with PostgreSQL, reads the rows of keys that differ again, or "
            "the whole table if it has no key for that, corrects them, and compares the tables once more. The metadata of "
            "each proof says which, and how many rows were read. Select proofs to repair some tables alone."
        ),
    )
