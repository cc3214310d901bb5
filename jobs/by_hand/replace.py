"""Replacing a view in two runs: one shows what an edited view would change, another applies just that; a job takes it back.

Computing and committing do not belong here (`lakeproof.commands.refresh`). The first run's page has the preview's id, and
that is what confirms the second.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import run_command
from assets.support.keys import SPARK_POOL, Layer
from jobs.by_hand.page import Confirmed, is_confirmed, job_by_hand, not_done, show
from jobs.names import VIEWS_REPLACE, VIEWS_TAKE_BACK, run_tags
from lakeproof.cli.results import from_json
from lakeproof.config.model import Config
from resources import Compute

if TYPE_CHECKING:
    from lakeproof.commands.refresh import ReplaceReport


class ReplaceRun(dg.Config):
    """The view to replace, and the confirmation."""

    view: str = Field(description="the view whose SQL file or `reads` were edited")
    confirm: str = Field(
        default="",
        description="the id of the preview to apply. Without it, the run makes a preview and changes nothing",
    )
    samples: int = Field(default=5, ge=0, le=100, description="so many rows to come, and to go, are shown")


class TakeBackRun(Confirmed):
    """The view to take back; the confirmation is its name."""

    view: str = Field(description="the view that was replaced")


def replace_jobs(config: Config) -> list[dg.JobDefinition]:
    """Return the jobs that replace a view and take that back; none if the configuration has no view."""

    @job_by_hand(
        VIEWS_REPLACE,
        run_tags("replace"),
        "Shows what an edited view would change: rows, columns, samples. With the preview's id it applies that.",
        op="replace_view",
        pool=SPARK_POOL,
    )
    def replaced(context: dg.OpExecutionContext, config: ReplaceRun, compute: Compute) -> None:
        words = ["--apply", "--preview", config.confirm] if config.confirm else ["--samples", str(config.samples)]
        done = _run(context, compute, config.view, words)
        if done.done != "applied" and done.preview is not None:
            context.log.warning("nothing was changed. To apply it, launch with confirm: %s", done.preview)

    @job_by_hand(
        VIEWS_TAKE_BACK,
        run_tags("take_back"),
        "Returns a view to the definition that was applied before. The confirmation is the view's name.",
        op="take_view_back",
        pool=SPARK_POOL,
    )
    def taken_back(context: dg.OpExecutionContext, config: TakeBackRun, compute: Compute) -> None:
        if is_confirmed(config, config.view):
            _run(context, compute, config.view, ["--take-back"])
        else:
            not_done(context, config.view, "return to the definition that was applied before", {"view": config.view})

    return [replaced, taken_back] if config.views else []


def _run(context: dg.OpExecutionContext, compute: Compute, view: str, words: Sequence[str]) -> "ReplaceReport":
    """Run the command, and show what it has done: on the run's page, and if the view was changed as its event."""
    from lakeproof.commands.refresh import ReplaceReport

    done = from_json(ReplaceReport, run_command(context, compute, "replace", view, *words))
    is_changed = done.done in {"applied", "taken_back"}
    show(context, {"changed": is_changed, **_metadata(done)})
    if is_changed:
        context.log_event(dg.AssetMaterialization(Layer.VIEWS.key(done.view), metadata=_metadata(done)))
    return done


def _metadata(done: "ReplaceReport") -> md.Metadata:
    columns = [{"change": change, "column": name, "type": kind} for change, name, kind in done.changed_columns]
    names = list(dict.fromkeys(name for sample in done.samples for name in sample.values))
    samples = [
        {"row": "comes" if row.comes else "goes"}
        | {name: "NULL" if (value := row.values.get(name)) is None else value for name in names}
        for row in done.samples
    ]
    return md.merged(
        {"view": done.view, "inserted": done.inserted, "retracted": done.retracted},
        md.optional(
            preview=done.preview,
            cut=done.cut and int(done.cut),
            delta_version=done.delta_version,
            rewritten=done.rewritten,
            computed_again=done.moved,
            previewed=done.previewed and f"{done.previewed[0]:,} rows inserted, {done.previewed[1]:,} retracted",
            changed_columns=md.table(columns),
            samples=md.table(samples),
        ),
    )
