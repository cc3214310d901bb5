"""The base of every section of `lakeproof.yaml`, and sections of their own.

The sections of a source, a view and a lake's place do not belong here (`model.py`, `location.py`).

    upkeep.py          compaction and retention
    publication.py     what a publication should send
    expectations.py    what is expected of tables
    external_table.py  tables outside of the lake
    alerts.py          who is notified of problems
    spark.py           where tasks run, and where the Spark work of Dagster is done
    sql_catalog.py     names in a SQL catalog
    metrics.py         metrics, and the addresses that serve them
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """The base of every section: unknown keys are mistakes, and values don't change after loading.

    The text below a key is its meaning, which docs/configuration.md repeats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True)
