"""The commands that work on the lake: compact, maintain, refresh, prove, status, inspect.

Each calls one function of `lakeproof.commands` or `lakeproof.landing` and formats its result. The imports are inside the
functions, so that only commands that need Spark load it. Work on a lake does not belong here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from lakeproof.cli.context import Context, report_decoding
from lakeproof.cli.results import DIFFERS, DONE, REFUSED, TRY_AGAIN, Outcome, format_table, printable, to_json
from lakeproof.errors import ConfigError
from lakeproof.events import FOLLOWED_CUTS, FOLLOWED_VIEWS, Event, RunControl, counted
from lakeproof.names import TableName
from lakeproof.schema import describe_left_out
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport
    from lakeproof.proof.result import ProofReport, TableProof
    from lakeproof.state.source_state import SourceState

_KEYS_SHOWN = 10


def compact(context: Context, args: argparse.Namespace) -> Outcome:
    """Bring history and current up to the end of the landing, of a source or of a group, once or again and again."""
    if args.follow:
        return _follow(context, args)
    if args.seconds is not None or args.no_views or args.metrics is not None:
        raise ConfigError("lakeproof compact", "--seconds, --no-views and --metrics are about --follow", "add --follow")
    if args.group is not None:
        return _compact_group(context, args.group)
    source = context.source(args.source)
    group = context.config.group_of(source)
    if group is not None:
        return _compact_group(context, group)
    from lakeproof.commands import compact as step
    from lakeproof.compaction.pending import compaction_has_work

    cuts: list[CutReport] = []
    if compaction_has_work(context.config, source):
        _check_free(context, source)
        with context.spark_on_demand() as spark:
            cuts = step.compact(context.config, source, spark, context.report, context.stop)
    return _compacted(context, source, cuts)


def _follow(context: Context, args: argparse.Namespace) -> Outcome:
    """Compact until the end is asked for, or the time is over."""
    source = None if args.group is not None else context.source(args.source)
    name = args.group if source is None else context.config.group_of(source) or source
    from lakeproof.commands import compact as step
    from lakeproof.follow.follower import FollowOptions

    sources = context.config.group(name) if name in context.config.groups or source is None else (name,)
    config = context.config if args.metrics is None else context.config.with_metrics(sources, args.metrics)
    with context.spark_on_demand() as spark:
        options = FollowOptions(
            args.seconds,
            not args.no_views,
            lambda cuts: context.report(Event(FOLLOWED_CUTS, f"{name}: cycles have ended", {"cuts": to_json(cuts)})),
            lambda views: context.report(
                Event(FOLLOWED_VIEWS, f"{counted(len(views), 'view')} refreshed", {"views": to_json(views)})
            ),
        )
        report = step.follow(config, name, spark, RunControl(context.report, context.stop), options)
    cycles = ", ".join(f"{source}: {counted(number, 'cycle')}" for source, number in sorted(report.cycles.items()))
    text = f"{cycles or name}; {counted(report.changes, 'change')}, {counted(report.refreshes, 'refresh', 'refreshes')}"
    return Outcome(DONE, report, f"{text}; {report.reason_for_end}")


def _check_free(context: Context, *sources: str) -> None:
    """Raise TransientError if another process writes to a source's lake, before anything else is done."""
    from lakeproof.lake.records.lease import check_free

    for source in sources:
        check_free(SourceLake.open(context.config.location, source))


def _check_free_to_prove(context: Context, source: str) -> None:
    """Raise TransientError if another process proves or maintains a source, before anything else is done."""
    from lakeproof.proof.record import check_free_to_prove

    check_free_to_prove(SourceLake.open(context.config.location, source))


def _compacted(context: Context, source: str, cuts: list[CutReport]) -> Outcome:
    """Return the outcome of a source's cycles, with what is held in its lake now."""
    from lakeproof.compaction.pending import what_is_left
    from lakeproof.lake.planning.set_aside import set_aside
    from lakeproof.lake.records.held import describe_all
    from lakeproof.state.absent import absence
    from lakeproof.state.slot import remedy_if_stuck
    from lakeproof.state.source_state import SourceState

    state = SourceState.of(context.config, source)
    held = {} if state.cut is None else state.cut.held
    text = f"{source}: nothing to do, everything that has landed is in the lake{_landed(state)}"
    if context.stop.requested:
        text = f"{source}: no cycle has ended"
    if cuts:
        rows = [
            (
                int(cut.number),
                cut.position,
                len(cut.tables),
                sum(t.copied for t in cut.tables.values()),
                sum(t.changes for t in cut.tables.values()),
                len(cut.held),
            )
            for cut in cuts
        ]
        text = format_table(("cut", "position", "tables", "copied rows", "changes", "held"), rows)
    absent = absence(state)
    reports = describe_all(held, source, remedy_if_stuck(state.chain))
    standing = {**reports, **absent.tables}
    # Of a table that was copied just now the way out is no copy.
    reasons = sorted((standing | {t: why for t, why in state.ahead.items() if t in standing}).items())
    waiting = [printable(f"{table}: {reason}") for table, reason in reasons]
    waited_for = held.keys() - set_aside(state.source, held, state.chain)
    left = what_is_left(context.config, source) if context.stop.requested else None
    if left is not None:
        waiting.append(f"{source}: stopped as asked; still to do: {left}; run `lakeproof compact {source}` again")
    result = {"cuts": cuts, "held": reports, "absent": absent.tables, "left": left}
    status = TRY_AGAIN if left is not None else DIFFERS if waited_for or absent.waited_for else DONE
    return Outcome(status, result, "\n".join([text, *waiting]))


def _landed(state: SourceState) -> str:
    """Return until when changes have landed, for whoever has forgotten to drain."""
    newest = None if state.chain is None else state.chain.newest
    written = "" if newest is None else f", up to {newest.end_lsn} (written {newest.created_at})"
    return f"{written}; a drain lands what the source has more" if written else ""


def _compact_group(context: Context, group: str) -> Outcome:
    """Bring all sources of a group to one position, and show each of them and the group's cut."""
    sources = context.config.group(group)
    from lakeproof.commands import compact as step
    from lakeproof.compaction.group import GroupReport
    from lakeproof.compaction.pending import group_has_work
    from lakeproof.lake.records.cuts.groups import newest_group_cut
    from lakeproof.storage.open import open_store

    report = GroupReport(group)
    if group_has_work(context.config, group):
        _check_free(context, *sources)
        with context.spark_on_demand() as spark:
            report = step.compact_group(context.config, group, spark, context.report, context.stop)
    outcomes = {source: _compacted(context, source, report.cuts.get(source, [])) for source in sources}
    cut = report.cut or newest_group_cut(open_store(context.config.location), group)
    pages = []
    for source, outcome in outcomes.items():
        pages.append(f"source {source}\n{outcome.text}" if report.cuts.get(source) else outcome.text)
    stands = "it has no cut yet" if cut is None else f"cut {cut.number} at {cut.position}"
    result = {"group": group, "cut": cut, "sources": {source: outcome.document for source, outcome in outcomes.items()}}
    status = max(outcome.status for outcome in outcomes.values())
    return Outcome(status, result, "\n\n".join([*pages, f"group {group}: {stands}"]))


def maintain(context: Context, args: argparse.Namespace) -> Outcome:
    """Apply the retention to the lake, and merge small files."""
    source = context.source(args.source)
    from lakeproof.commands import maintain as step

    if args.nothing_else and not (args.rebuild or args.restore):
        reason = "--nothing-else is about --rebuild and --restore"
        raise ConfigError("lakeproof maintain", reason, "name tables with one of them")
    if args.plan:
        report = step.maintenance_plan(context.config, source)
    else:
        _check_free_to_prove(context, source)
        _check_free(context, source)
        with context.spark_on_demand() as spark:
            report = step.maintain(
                context.config,
                source,
                spark,
                context.report,
                step.MaintenanceRequest(args.rebuild, args.restore, nothing_else=args.nothing_else),
                context.stop,
            )
    text = format_table(
        ("part", "files", "bytes"), [(part, space.files, space.bytes) for part, space in report.freed.items()]
    )
    done = {"trimmed": report.trimmed, "optimized": report.optimized, "rebuilt": report.rebuilt, "views": report.views}
    lines = [printable(f"{action}: {', '.join(map(str, tables))}") for action, tables in done.items() if tables]
    if args.plan:
        lines.insert(0, "nothing was changed: this shows what would be deleted and optimized")
    lines += [printable(f"{thing}: {reason}") for thing, reason in report.damaged.items()]
    return Outcome(DIFFERS if report.damaged else DONE, report, "\n".join([text, *lines]))


def refresh(context: Context, args: argparse.Namespace) -> Outcome:
    """Bring views up to the newest cuts of their sources."""
    named = list(dict.fromkeys(args.views))
    # The error of a view that is named alone is the command's.
    view = None if not named else named[0] if len(named) == 1 else named
    for name in named:
        if name == view or name not in context.config.faulty_views:
            context.view(name)
    from lakeproof.commands import refresh as step
    from lakeproof.state.due_work import why_not_refresh

    reason = None if args.again else why_not_refresh(context.config, view)
    if reason is not None:
        still = step.views_standing_still(context.config, view)
        lines = [f"nothing to do: {reason}", *(printable(f"{v.view}: stands still: {v.stands_still}") for v in still)]
        return Outcome(DIFFERS if still else DONE, still, "\n".join(lines))
    context.check_free_to_refresh()
    with context.spark() as spark:
        views = step.refresh(context.config, view, spark, context.report, whole=args.again)
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
    text = format_table(("view", "cut", "delta version", "inserted", "retracted", "read at"), rows)
    standing = [printable(f"{v.view}: stands still: {v.stands_still}") for v in views if v.stands_still is not None]
    return Outcome(DIFFERS if standing else DONE, views, "\n".join([text, *standing]))


def prove(context: Context, args: argparse.Namespace) -> Outcome:
    """Compare source and lake at one position."""
    source = context.source(args.source)
    from lakeproof.commands import prove as step
    from lakeproof.proof.lake.by_itself import LakePart
    from lakeproof.proof.result import ProofReport
    from lakeproof.proof.run import ProofRequest, check_prove

    _check_free_to_prove(context, source)
    control, part = RunControl(context.report, context.stop), None
    if args.histories is not None or args.views is not None:
        part = LakePart(args.histories or (), [str(context.view(view)) for view in args.views or ()])
    request = ProofRequest(args.repair, args.history, part, args.changed)
    if part is not None and args.tables is None:
        with context.spark_on_demand() as spark:
            lake = step.prove_in_lake(context.config, source, part, spark, control)
        proof = ProofReport(source, None, {}, lake)
    else:
        check_prove(context.config, source, args.tables)
        _check_free(context, source)
        report_decoding(context.report)
        with context.spark_on_demand() as spark:
            proof = step.prove(context.config, source, args.tables, spark, control, request)
    result = DIFFERS if proof.damaged else _proof_status({t.status for t in proof.tables.values()})
    proved = {} if proof.lake is None else proof.lake.histories
    # A proof that was stopped or blocked has a reason of its own.
    is_over = not context.stop.requested and (proof.lake is not None or args.tables is None)
    absent = [table for table in args.histories or () if is_over and table not in proved]
    lines = [printable(f"history of {table}: not compared: the lake does not have it yet") for table in absent]
    return Outcome(DIFFERS if absent else result, proof, "\n".join([proof_page(proof), *lines]))


def expect(context: Context, args: argparse.Namespace) -> Outcome:
    """Check the Great Expectations of current tables at the newest cut."""
    source = context.source(args.source)
    from lakeproof.commands import expect as step

    with context.spark_on_demand() as spark:
        report = step.expect(context.config, source, args.tables, spark, context.report)
    rows = [
        (str(table), result.name, "yes" if result.passed else printable(f"no: {result.shortfall}"))
        for table, results in report.tables.items()
        for result in results
    ]
    text = format_table(("table", "expectation", "met"), rows)
    return Outcome(DONE if report.all_passed else DIFFERS, report, text)


def daily(context: Context, args: argparse.Namespace) -> Outcome:
    """Keep tables as they were at the end of days."""
    source = context.source(args.source)
    from lakeproof.commands import daily as step

    step.check_daily(context.config, source, args.days, args.tables)
    with context.spark() as spark:
        report = step.daily(
            context.config, source, args.days, spark, RunControl(context.report, context.stop), args.tables
        )
    rows = [
        (day.day, str(table), day.rows, day.position, "yes" if day.is_over else "no", day.audit.status)
        for table, days in report.tables.items()
        for day in days
    ]
    text = format_table(("day", "table", "rows", "position", "over", "adds up"), rows)
    reasons = [
        printable(f"{table}: {day.day}: {day.audit.reason}")
        for table, days in report.tables.items()
        for day in days
        if day.audit.reason is not None
    ]
    return Outcome(DONE if report.adds_up else DIFFERS, report, "\n".join([text, *reasons]))


def proof_page(proof: ProofReport) -> str:
    """Return the result for people: a line for each table, then the reasons, then histories and views."""
    rows = [
        (str(table), t.source_rows, t.lake_rows, proof.position, "yes" if t.status == "equal" else t.status)
        for table, t in proof.tables.items()
    ]
    text = format_table(("table", "rows in PostgreSQL", "rows in the lake", "position", "equal"), rows)
    reasons = [line for table, result in proof.tables.items() for line in _differences(table, result)]
    return "\n".join([text, *_left_out(proof), *_outside(proof), *_repairs(proof), *reasons, *_lake(proof)])


def _left_out(proof: ProofReport) -> list[str]:
    """Return a line for each table that has unpublished columns."""
    return [
        printable(
            f"{table}: columns not published, so neither in the lake nor compared: {describe_left_out(result.left_out)}"
        )
        for table, result in proof.tables.items()
        if result.left_out
    ]


def _outside(proof: ProofReport) -> Iterator[str]:
    """Yield a line for each table with partitions that send nothing."""
    for table, result in proof.tables.items():
        if result.outside:
            names = ", ".join(map(str, result.outside))
            yield printable(f"{table}: unlogged or foreign, so neither in the lake nor compared: partition {names}")


def _repairs(proof: ProofReport) -> Iterator[str]:
    """Yield a line for each table that was repaired."""
    for table, result in proof.tables.items():
        repair = result.repair
        if repair is None:
            continue
        rows = "" if repair.rows_read is None else f", {counted(repair.rows_read, 'row')} read"
        by_keys, whole = f"repaired by {counted(repair.keys or 0, 'key')}{rows}", f"copied whole{rows}: {repair.reason}"
        how = {"keys": by_keys, "whole": whole, "none": f"not repaired: {repair.reason}"}
        yield printable(f"{table}: {how[repair.how]}")


def _lake(proof: ProofReport) -> Iterator[str]:
    """Yield the lines about histories and views."""
    if proof.lake is None:
        return
    for kind, proofs in (("histories", proof.lake.histories), ("views", proof.lake.views)):
        equal = sum(p.status == "equal" for p in proofs.values())
        if proofs:
            yield f"{kind}: {equal} of {len(proofs)} compared are equal"
    yield from (printable(f"{thing}: {reason}") for thing, reason in proof.damaged.items())
    for view, view_proof in proof.lake.views.items():
        if view_proof.status == "blocked":
            yield printable(f"view {view}: not compared: {view_proof.reason}")


def _differences(table: TableName, proof: TableProof) -> Iterator[str]:
    if proof.reason:
        yield printable(f"{table}: {proof.reason}")
    for differing in proof.differing_keys[:_KEYS_SHOWN]:
        key = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in differing.key.items())
        yield printable(f"{table}: {key}: {differing.source_rows} in PostgreSQL, {differing.lake_rows} in the lake")
    if len(proof.differing_keys) > _KEYS_SHOWN:
        yield f"{table}: {len(proof.differing_keys) - _KEYS_SHOWN} more keys with --json"


def _proof_status(statuses: set[str]) -> int:
    if statuses & {"differs", "held", "missing"}:
        return DIFFERS
    return TRY_AGAIN if "blocked" in statuses else DONE


def status(context: Context, args: argparse.Namespace) -> Outcome:
    """Show slots, landings, cuts, held tables and views."""
    names = context.sources(args.source)
    from lakeproof.cli.status_page import page
    from lakeproof.commands import status as step

    sizes = None
    if args.sizes:
        from lakeproof.commands.maintain import lake_sizes

        sizes = partial(lake_sizes, context.config, plan=True)
    report = step.status(context.config, names, sizes=sizes)
    result = DONE
    if report.differs:
        result = DIFFERS
    elif any(not problem.transient for problem in report.problems):
        result = REFUSED
    elif report.problems:
        result = TRY_AGAIN
    return Outcome(result, report, page(report))
