"""The command that replaces a view's definition: a preview, applying it, taking it back.

Refreshing views belongs to `lake_commands`, the work to `lakeproof.commands.refresh`; it is imported when it is called for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakeproof.cli.context import Context
from lakeproof.cli.results import DONE, Outcome, format_table, printable
from lakeproof.errors import ConfigError
from lakeproof.events import counted

if TYPE_CHECKING:
    from lakeproof.commands.refresh import ReplaceReport


def replace(context: Context, args: argparse.Namespace) -> Outcome:
    """Show what the configuration's definition would change about a view, apply that, or return to the one before."""
    view = str(context.view(args.view))
    if args.preview is not None and not args.apply:
        raise ConfigError("lakeproof replace", "--preview names what --apply commits", "add --apply")
    from lakeproof.commands import refresh as step

    context.check_free_to_refresh()
    with context.spark_on_demand() as spark:
        if args.apply:
            done = step.apply_preview(context.config, view, spark, context.report, args.preview)
        elif args.take_back:
            done = step.take_back(context.config, view, spark, context.report)
        else:
            done = step.preview(context.config, view, spark, context.report, args.samples)
    return Outcome(DONE, done, replaced(done))


def replaced(done: ReplaceReport) -> str:
    """Return a preview, or what was applied, for people."""
    return "\n".join(_lines(done))


def _lines(done: ReplaceReport) -> Iterator[str]:
    if done.done == "nothing":
        yield f"nothing to do: view {done.view} has the configuration's definition since cut {done.cut}"
        return
    if done.done == "previewed":
        yield from _preview(done)
        return
    what = "applied" if done.done == "applied" else "taken back"
    yield f"view {done.view}: {what} in cut {done.cut}, {_rows(done.inserted, done.retracted)}"
    if done.moved is not None and done.previewed is not None:
        yield printable(f"computed again, since {done.moved}; the preview had {_rows(*done.previewed)}")


def _preview(done: ReplaceReport) -> Iterator[str]:
    yield f"view {done.view}: preview {done.preview}, against its cut {done.cut}; nothing was changed"
    columns = done.changed_columns
    if columns:
        yield format_table(("change", "column", "type"), columns)
    by = " by the columns that stay" if columns else ""
    yield f"{counted(done.inserted, 'row')} would come, {done.retracted:,} would go{by}"
    if done.rewritten is not None:
        yield f"{counted(done.rewritten, 'row')} would be written anew"
    if done.samples:
        names = list(dict.fromkeys(name for sample in done.samples for name in sample.values))
        rows = [("comes" if s.comes else "goes", *(s.values.get(name) for name in names)) for s in done.samples]
        yield format_table(("", *names), rows)
    yield f"apply it with `lakeproof replace {done.view} --apply`"


def _rows(inserted: int, retracted: int) -> str:
    return f"{counted(inserted, 'row')} inserted, {retracted:,} retracted"
