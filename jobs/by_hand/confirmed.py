"""A confirmation in a job's configuration, and the page of a run that a person watches: events with fields, a result.

What a job does does not belong here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from assets.support.engine_call import failure
from lakeproof.errors import ConfigError


class Confirmed(dg.Config):
    """The configuration of a job that destroys something: without the confirmation it shows what it would do."""

    confirm: str = Field(
        default="",
        description="the source's name. Without it, the run shows what it would do and changes nothing",
    )


def is_confirmed(config: Confirmed, source: str) -> bool:
    """Return True if the source's name was given, False if nothing was; raises dagster.Failure for any other text."""
    if config.confirm not in {"", source}:
        reason = f"it is {config.confirm[:80]!r}, and the source's name is {source!r}"
        remedy = f"give {source!r} to change it, or nothing to see what would be done"
        raise failure(ConfigError("confirm", reason, remedy))
    return config.confirm == source


def show(context: dg.OpExecutionContext, metadata: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> None:
    """Put the result on the run's page: its values, and a table of what it is about."""
    table = {"tables": dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows])} if rows else {}
    context.add_output_metadata({**metadata, **table})


def not_done(context: dg.OpExecutionContext, source: str, would: str) -> None:
    """Say in the run's log that nothing was changed, what would be, and how to have it done."""
    context.log.warning("nothing was changed. It would %s. To do it, launch with confirm: %s", would, source)
