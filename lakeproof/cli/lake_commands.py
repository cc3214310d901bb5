"""The commands that work on the lake: compact, maintain, refresh, prove, status, inspect.

Each calls one function of `lakeproof.pipeline` or `lakeproof.landing`, imported when it is needed: only those that need
Spark start it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from lakeproof.cli.context import Context
from lakeproof.cli.results import DIFFERS, DONE, REFUSED, TRY_AGAIN, Outcome, grid, plain
from lakeproof.names import TableName
from lakeproof.schema import describe_left_out

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport
    from lakeproof.proof.result import ProofReport, TableProof

_KEYS_SHOWN = 10


def compact(context: Context, args: argparse.Namespace) -> Outcome:
    """Bring history and current to the landing's end."""
    source = context.source(args.source)
    from lakeproof.commands import compact as step
    from lakeproof.commands.due_copies import never_copied
    from lakeproof.commands.pending_work import compaction_has_work
    from lakeproof.lake.planning.left_behind import left_behind
    from lakeproof.lake.records.store import newest_cut
    from lakeproof.landing.chain import Chain
    from lakeproof.storage.open import open_store
    from lakeproof.storage.paths import LakePaths

    cuts: list[CutReport] = []
    if compaction_has_work(context.config, source):
        with context.spark() as spark:
            cuts = step.compact(context.config, source, spark, context.report, context.stop)
    store, paths = open_store(context.config.lake), LakePaths(context.config.lake, source)
    newest = newest_cut(store, paths)
    held = {} if newest is None else newest.held
    text = f"{source}: nothing to do, all that has landed is in the lake"
    if cuts:
        rows = [
            (int(cut.number), cut.position, len(cut.tables), sum(t.changes for t in cut.tables.values()), len(cut.held))
            for cut in cuts
        ]
        text = grid(("cut", "position", "tables", "changes", "held"), rows)
    absent = never_copied(context.config, source)
    still = [plain(f"{table}: {why}") for table, why in sorted({**held, **absent}.items())]
    left = left_behind(context.config.source(source), held, Chain.open_newest(store, paths))
    waited_for = held.keys() - left
    result = {"cuts": cuts, "held": held, "absent": absent}
    return Outcome(DIFFERS if waited_for or absent else DONE, result, "\n".join([text, *still]))


def maintain(context: Context, args: argparse.Namespace) -> Outcome:
    """Keep the lake as the retention says."""
    source = context.source(args.source)
    from lakeproof.commands import maintain as step

    if args.plan:
        done = step.maintenance_plan(context.config, source)
    else:
        with context.spark() as spark:
            done = step.maintain(
                context.config,
                source,
                spark,
                context.report,
                rebuild=args.rebuild,
                restore=args.restore,
                stop=context.stop,
            )
    text = grid(("of", "files", "bytes"), [(of, part.files, part.bytes) for of, part in done.freed.items()])
    told = {"trimmed": done.trimmed, "optimized": done.optimized, "repaired": done.repaired, "views": done.views}
    lines = [plain(f"{what}: {', '.join(map(str, tables))}") for what, tables in told.items() if tables]
    if args.plan:
        lines.insert(0, "nothing was changed: this is what would go, and what would be put together")
    lines += [plain(f"{thing}: {why}") for thing, why in done.damaged.items()]
    return Outcome(DIFFERS if done.damaged else DONE, done, "\n".join([text, *lines]))


def refresh(context: Context, args: argparse.Namespace) -> Outcome:
    """Bring views up to the newest cuts of what they read."""
    view = context.view(args.view)
    from lakeproof.commands import refresh as step
    from lakeproof.commands.pending_work import why_not_refresh

    nothing = why_not_refresh(context.config, view)
    if nothing is not None:
        held = step.held_views(context.config, view)
        lines = [f"nothing to do: {nothing}", *(plain(f"{v.view}: held: {v.held}") for v in held)]
        return Outcome(DIFFERS if held else DONE, held, "\n".join(lines))
    with context.spark() as spark:
        views = step.refresh(context.config, view, spark, context.report)
    rows = [
        (
            v.view,
            None if v.cut is None else int(v.cut),
            v.delta_version,
            v.inserted,
            v.retracted,
            ", ".join(f"{source} {position}" for source, (_cut, position) in sorted(v.sources.items())) or None,
        )
        for v in views
    ]
    text = grid(("view", "cut", "delta version", "inserted", "retracted", "read at"), rows)
    still = [plain(f"{v.view}: held: {v.held}") for v in views if v.held is not None]
    return Outcome(DIFFERS if still else DONE, views, "\n".join([text, *still]))


def prove(context: Context, args: argparse.Namespace) -> Outcome:
    """Compare source and lake at one position."""
    source = context.source(args.source)
    from lakeproof.commands import prove as step

    step.check_prove(context.config, source, args.tables)
    with context.spark() as spark:
        proof = step.prove(
            context.config,
            source,
            args.tables,
            spark,
            context.report,
            context.stop,
            repair=args.repair,
            history=args.history,
        )
    rows = [
        (str(table), t.source_rows, t.lake_rows, proof.position, "yes" if t.status == "equal" else t.status)
        for table, t in proof.tables.items()
    ]
    text = grid(("table", "rows in PostgreSQL", "rows in the lake", "position", "equal"), rows)
    reasons = left_out_lines(proof) + [
        line for table, found in proof.tables.items() for line in _differences(table, found)
    ]
    reasons += _lake(proof)
    result = DIFFERS if proof.damaged else _proof_status({t.status for t in proof.tables.values()})
    return Outcome(result, proof, "\n".join([text, *reasons]))


def left_out_lines(proof: ProofReport) -> list[str]:
    """A line for each table of which not all columns are published."""
    return [
        plain(
            f"{table}: columns not published, so neither in the lake nor compared: {describe_left_out(found.left_out)}"
        )
        for table, found in proof.tables.items()
        if found.left_out
    ]


def _lake(proof: ProofReport) -> Iterator[str]:
    """What was said of histories and views."""
    if proof.lake is None:
        return
    for what, found in (("histories", proof.lake.histories), ("views", proof.lake.views)):
        equal = sum(p.status == "equal" for p in found.values())
        if found:
            yield f"{what}: {equal} of {len(found)} that were looked at are equal"
    yield from (plain(f"{thing}: {reason}") for thing, reason in proof.damaged.items())
    for view, said in proof.lake.views.items():
        if said.status == "blocked":
            yield plain(f"view {view}: not compared: {said.reason}")


def _differences(table: TableName, proof: TableProof) -> Iterator[str]:
    if proof.left_out:
        yield plain(
            f"{table}: columns not published, so neither in the lake nor compared: {describe_left_out(proof.left_out)}"
        )
    if proof.reason:
        yield plain(f"{table}: {proof.reason}")
    for found in proof.differing_keys[:_KEYS_SHOWN]:
        key = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in found.key.items())
        yield plain(f"{table}: {key}: {found.source_rows} in PostgreSQL, {found.lake_rows} in the lake")
    if len(proof.differing_keys) > _KEYS_SHOWN:
        yield f"{table}: {len(proof.differing_keys) - _KEYS_SHOWN} more keys with --json"


def _proof_status(found: set[str]) -> int:
    if found & {"differs", "held", "missing"}:
        return DIFFERS
    return TRY_AGAIN if "blocked" in found else DONE


def status(context: Context, args: argparse.Namespace) -> Outcome:
    """Slots, landings, cuts, held tables, views."""
    names = context.sources(args.source)
    from lakeproof.cli.status_page import page
    from lakeproof.commands import status as step

    sizes = None
    if args.sizes:
        from lakeproof.commands.sizes import lake_sizes

        sizes = partial(lake_sizes, context.config, plan=True)
    report = step.status(context.config, names, sizes=sizes)
    result = DONE
    if report.held or report.incomplete:
        result = DIFFERS
    elif any(not problem.transient for problem in report.problems):
        result = REFUSED
    elif report.problems:
        result = TRY_AGAIN
    return Outcome(result, report, page(report))


def inspect(context: Context, args: argparse.Namespace) -> Outcome:
    """What is in a manifest, a data file or a whole landing."""
    from lakeproof.landing import inspect as step

    if context.as_json:
        return Outcome(DONE, step.inspect(args.file), "")
    return Outcome(DONE, None, step.inspect_text(args.file))
