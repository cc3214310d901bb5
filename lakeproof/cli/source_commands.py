"""The commands that talk to PostgreSQL: check, plan, apply, pause, resume, bootstrap, drain, recover, teardown.

Each calls one function of `lakeproof.commands`, imported when it is needed, and formats its result. Talking to a server does
not belong here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lakeproof.cli.context import Context, report_decoding
from lakeproof.cli.results import (
    DIFFERS,
    DONE,
    REFUSED,
    TRY_AGAIN,
    Outcome,
    format_bytes,
    format_table,
    printable,
)
from lakeproof.errors import ConfigError
from lakeproof.events import counted, listed
from lakeproof.schema import describe_left_out

if TYPE_CHECKING:
    from lakeproof.commands.check import CheckReport
    from lakeproof.commands.publish import PublicationPlan
    from lakeproof.commands.recover import RecoverPlan
    from lakeproof.config.model import Config
    from lakeproof.postgres.checks.findings import Finding
    from lakeproof.snapshot.run import SnapshotReport
    from lakeproof.state.machine import LakeCheck, SparkCheck

# The page size of nearly every server; good enough for a size that is an estimate anyway.
_PAGE_BYTES = 8192
_TABLES_SHOWN = 20
_CHECK_HEADINGS = ("kept", "identity", "key", "columns", "kept as text", "size", "published")
_DRAIN_HEADINGS = ("table", "inserts", "updates", "deletes", "truncates", "size")
_BOOTSTRAP_HEADINGS = ("table", "rows", "size", "chunks", "seconds", "as of")


def check(context: Context, args: argparse.Namespace) -> Outcome:
    """Check the configuration, each source, and what this machine has for the lake and for Spark."""
    names = context.sources(args.source)
    from lakeproof.commands.check import check_sources

    return checked(context.config, check_sources(context.config, names))


def checked(config: Config, reports: Mapping[str, CheckReport]) -> Outcome:
    """Return the outcome of `check` for what was reported of the sources."""
    from lakeproof.commands.check import spread_findings
    from lakeproof.lake.spark.jars import is_on_s3
    from lakeproof.state import machine

    lake = machine.check_lake(config)
    spark = machine.check_spark(config.spark, s3=is_on_s3(config.lake))
    groups = spread_findings(config, reports)
    pages = [_check_page(name, report) for name, report in reports.items()]
    pages += ["\n".join([f"group {group}:", *_findings([finding])]) for group, finding in groups.items()]
    text = "\n\n".join([*pages, _lake_page(lake), _spark_page(spark)])
    refused = [report for report in reports.values() if report.refused]
    status = DIFFERS if refused else DONE
    if any(not report.single_tables for report in refused):
        status = REFUSED if any(not r.try_again and not r.single_tables for r in refused) else TRY_AGAIN
    if machine.is_refused((*lake.findings, *spark.findings)):
        status = REFUSED
    return Outcome(status, {"sources": reports, "groups": groups, "lake": lake, "spark": spark}, text)


def plan(context: Context, args: argparse.Namespace) -> Outcome:
    """Show the SQL that `apply` would run."""
    source = context.source(args.source)
    from lakeproof.commands import publish as step

    planned = step.plan(context.config, source)
    return Outcome(_published(planned), planned, _statements(source, planned))


def apply(context: Context, args: argparse.Namespace) -> Outcome:
    """Show the SQL, then run it."""
    source = context.source(args.source)
    from lakeproof.commands import publish as step

    planned = step.plan(context.config, source)
    context.show(_statements(source, planned))
    step.apply(context.config, source, planned, context.report)
    text = "" if planned.empty else "done"
    if planned.grants:
        text = "done, but for what somebody else has to run" if planned.statements else "somebody else has to run this"
    return Outcome(DIFFERS if planned.grants else _published(planned), planned, text)


def pause(context: Context, args: argparse.Namespace) -> Outcome:
    """Take tables out of the publication until they are resumed."""
    source = context.source(args.source)
    from lakeproof.commands import publish as step

    if args.tables is None:
        raise ConfigError("lakeproof pause", "it does not say which tables", "name them with --tables schema.table,…")
    done = step.pause(context.config, source, args.tables, context.report)
    named = ", ".join(map(str, args.tables))
    lines = [f"{statement};" for statement in done.statements]
    lines.append(f"{source}: paused {named}; `lakeproof resume {source}` publishes and copies them again")
    return Outcome(DONE, done, "\n".join(map(printable, lines)))


def resume(context: Context, args: argparse.Namespace) -> Outcome:
    """Publish paused tables and copy them."""
    source = context.source(args.source)
    from lakeproof.commands import publish as step

    return _copied(
        context, source, lambda: step.resume(context.config, source, args.tables, context.report, context.stop)
    )


def _published(planned: PublicationPlan) -> int:
    """Return the exit status: DIFFERS if a table is refused."""
    return DIFFERS if planned.refused else DONE


def bootstrap(context: Context, args: argparse.Namespace) -> Outcome:
    """Copy tables at one consistent point."""
    source = context.source(args.source)
    from lakeproof.commands import bootstrap as step

    tables = args.tables
    if args.held:
        from lakeproof.state.due_copies import recopy

        due = recopy(context.config, source, datetime.now(timezone.utc))
        if not due.due:
            later = [
                f"{table}: not before {when:%Y-%m-%d %H:%M:%S} UTC, since it was copied lately; with `--tables` at once"
                for table, when in due.paused.items()
            ]
            later += [f"{table}: it needs no copy: {why}" for table, why in due.waiting.items()]
            lines = [f"{source}: no table waits for a snapshot now", *later]
            return Outcome(DONE, due, "\n".join(printable(line) for line in lines))
        tables = tuple(due.due)
    return _copied(
        context,
        source,
        lambda: step.bootstrap(context.config, source, tables, context.report, context.stop, again=args.again or None),
    )


def recover(context: Context, args: argparse.Namespace) -> Outcome:
    """Show why a new incarnation is needed and what it takes, then begin it."""
    source = context.source(args.source)
    from lakeproof.commands import recover as step

    planned = step.plan_recover(context.config, source, abandon_slot=args.abandon_slot)
    if args.dry_run:
        return Outcome(DONE, planned, _recover_page(planned))
    context.show(_recover_page(planned) + "\n")
    if planned.abandons and args.abandon_slot and not args.yes:
        question = f"Drop slot {planned.slot}, and leave out what it has not sent? [yes/no] "
        if not _agreed(question):
            raise ConfigError(f"lakeproof {context.command}", "it was not confirmed", "answer yes, or pass --yes")
    confirmed = {"other_system": args.other_system, "abandon_slot": args.abandon_slot}
    return _copied(
        context, source, lambda: step.recover(context.config, source, context.report, context.stop, **confirmed)
    )


def _copied(context: Context, source: str, copy: Callable[[], SnapshotReport]) -> Outcome:
    """Return the outcome of a snapshot, even if the copies of some tables failed."""
    from lakeproof.snapshot.run import SnapshotIncompleteError

    report_decoding(context.report)
    status = DONE
    try:
        result = copy()
    except SnapshotIncompleteError as error:
        status, result = error.exit_status, error.report
    copies = sorted([*result.tables.items(), *result.kept.items()])
    rows = [
        (
            str(t),
            c.rows,
            format_bytes(c.bytes),
            c.chunks,
            None if c.seconds is None else f"{c.seconds:.1f}",
            c.consistent_point,
        )
        for t, c in copies
    ]
    head = (
        f"{source}: {counted(len(result.tables), 'table')} copied, at {result.consistent_point} by slot {result.slot}"
    )
    head += f"; {len(result.kept)} had been finished by an earlier run" if result.kept else ""
    failed = [printable(f"{table}: not copied: {reason}") for table, reason in sorted(result.failed.items())]
    skipped = [printable(f"{table}: skipped: it was dropped, or is no longer published") for table in result.skipped]
    left_out = [
        printable(f"{table}: columns not published, so not in the lake: {describe_left_out(columns)}")
        for table, columns in sorted(result.left_out.items())
    ]
    lines = [head, "", format_table(_BOOTSTRAP_HEADINGS, rows), *left_out, *failed, *skipped]
    return Outcome(status, result, "\n".join(lines))


def _recover_page(planned: RecoverPlan) -> str:
    end = (
        "the end of its landing can't be read" if planned.end_lsn is None else f"its landing ends at {planned.end_lsn}"
    )
    lines = [f"source {planned.source}: incarnation {planned.follows} can't go on: {planned.reason}"]
    if planned.resumes:
        lines = [f"source {planned.source}: incarnation {planned.incarnation} has begun and has no snapshot yet"]
    else:
        lines += [
            f"  {end}; changes between that point and the start of the new incarnation are unknown, and history records that"
        ]
    if planned.moved is not None:
        lines += [f"  {planned.moved}: this requires --other-system"]
    kept = "" if planned.released_bytes is None else f" and keeps {format_bytes(planned.released_bytes)} of WAL"
    lines += [f"  drop slot {slot}, which can't be read any further{kept}" for slot in planned.drops]
    if not planned.resumes:
        slot_step = "keep slot {} as it is" if planned.keeps_slot else "create slot {}"
        lines += [f"  {slot_step.format(planned.slot)}, begin incarnation {planned.incarnation} at its position"]
    tables = listed(planned.tables, _TABLES_SHOWN)
    lines += [f"  copy {counted(len(planned.tables), 'table')} under one snapshot: {tables}"]
    lines += ["  the next compaction brings each of them to that snapshot by correction"]
    return "\n".join(printable(line) for line in lines)


def drain(context: Context, args: argparse.Namespace) -> Outcome:
    """Read changes from the slot into the landing."""
    source = context.source(args.source)
    from lakeproof.commands import drain as step
    from lakeproof.drain.until import Until

    until, ends_by_signal = Until.stopped(), True
    if args.once:
        until, ends_by_signal = Until.caught_up(), False
    elif args.until_lsn is not None:
        until, ends_by_signal = Until.lsn(args.until_lsn), False
    elif args.seconds is not None:
        until = Until.seconds(args.seconds)
    config = context.config
    if args.metrics is not None:
        if not until.lasting:
            raise ConfigError("lakeproof drain", "--metrics is about a drain that goes on", "leave one of the two out")
        config = config.with_metrics([source], args.metrics)
    report_decoding(context.report)
    result = step.drain(config, source, until, context.report, context.stop)
    rows = [
        (str(table), c.inserts, c.updates, c.deletes, c.truncates, format_bytes(c.bytes))
        for table, c in result.tables.items()
    ]
    confirmed = (
        f"the slot is confirmed up to {result.confirmed_flush_lsn}"
        if result.confirmed_flush_lsn
        else "nothing was confirmed"
    )
    transactions, rows_landed = counted(result.transactions, "transaction"), counted(result.rows, "row")
    head = (
        f"{result.source}: {transactions}, {rows_landed}, {counted(result.segments, 'segment')}; "
        f"the landing went from {result.start_lsn} to {result.end_lsn}, {confirmed} ({result.reason_for_end})"
    )
    text = head if not rows else f"{head}\n\n{format_table(_DRAIN_HEADINGS, rows)}"
    return Outcome(DONE, result, text, ends_by_signal=ends_by_signal)


def teardown(context: Context, args: argparse.Namespace) -> Outcome:
    """Drop the slot, and the publications that lakeproof made, after a confirmation."""
    source = context.source(args.source)
    from lakeproof.commands import teardown as step

    if args.dry_run:
        plan = step.plan_teardown(context.config, source, end_drain=args.end_drain)
        return Outcome(DONE if plan.is_whole else DIFFERS, plan, printable(f"{source}: would {plan.would}"))
    slot = context.config.sources[source].slot
    objects = f"slot {slot} of source {source}, and the publications that lakeproof made for it"
    if not args.yes and not _agreed(f"Drop {objects}? Later changes are not captured. [yes/no] "):
        raise ConfigError(f"lakeproof {context.command}", "it was not confirmed", "answer yes, or pass --yes")
    result = step.teardown(context.config, source, context.report, end_drain=args.end_drain)
    dropped = (
        [] if result.slot is None else [f"slot {result.slot} ({format_bytes(result.released_bytes)} of WAL released)"]
    )
    dropped += [f"publication {name}" for name in result.publications]
    lines = [f"{source}: dropped {', '.join(dropped) or 'nothing'}"]
    lines += [f"{source}: {step.kept_in_words(result.kept)}"] if result.kept else []
    return Outcome(DONE, result, "\n".join(map(printable, lines)))


def _agreed(question: str) -> bool:
    """Ask on the terminal; without a terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


def _statements(source: str, planned: PublicationPlan) -> str:
    lines = _runnable(source, [*planned.grants, *planned.statements])
    lines = lines or [f"-- {source}: nothing to do, what is published is what the configuration asks for"]
    refused = [printable(f"-- refused: {reason}") for reason in planned.refused.values()]
    notes = list(planned.notes)
    if planned.grants:
        many = len(planned.grants)
        count = "the first statement is" if many == 1 else f"the first {many} statements are"
        notes.append(f"{count} for somebody else to run: role {planned.role} can't give itself what it lacks")
    if planned.lacking:
        notes.append(
            f"role {planned.role} may not run this: it lacks {' and '.join(planned.lacking)}; let the owner run it"
        )
    return "\n".join([*lines, *(printable(f"-- {note}") for note in notes), *refused])


def _runnable(source: str, statements: Sequence[str]) -> list[str]:
    """Return lines that do what the statements do, or only comments: a statement can't be shown with other characters.

    They belong together, so if one of them can't be shown, none is to be run from here.
    """
    hidden = [statement for statement in statements if printable(statement) != statement]
    if not hidden:
        return [f"{statement};" for statement in statements]
    reason = "it has a control character in a name or a text, which can't be shown: `lakeproof apply` runs all of them"
    shown = [printable(f"-- {statement};") for statement in statements]
    return [*shown, *(printable(f"-- refused: {source}: {statement}: {reason}") for statement in hidden)]


def _check_page(name: str, report: CheckReport) -> str:
    lines = [f"source {name}: {_outcome(report)}", *_findings(report.findings)]
    if report.tables:
        rows = [
            (
                str(table.name),
                table.kept,
                table.identity,
                ", ".join(table.key) or "none: a bag of rows",
                table.columns,
                len(table.exact_text_columns),
                format_bytes(_PAGE_BYTES * table.pages),
                ", ".join(table.actions),
            )
            for table in report.tables
        ]
        first = "published table" if report.publications else "table, once it is published"
        lines += ["", format_table((first, *_CHECK_HEADINGS), rows)]
        filtered = [table for table in report.tables if table.row_filter is not None]
        lines += [printable(f"{table.name}: only rows with {table.row_filter}") for table in filtered]
    return "\n".join(lines)


def _findings(findings: Iterable[Finding]) -> list[str]:
    """Return a line for each finding; things with the same reason and remedy share one."""
    shared: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        shared.setdefault((finding.severity.value, f"{finding.reason}; {finding.remedy}"), []).append(finding)
    return [printable(f"  {kind:<8} {_things(alike)}: {text}") for (kind, text), alike in shared.items()]


def _things(alike: Sequence[Finding]) -> str:
    tables = [finding.table for finding in alike if finding.table is not None]
    if 1 < len(tables) == len(alike):
        return f"tables {listed(tables, 5)}"
    return listed([finding.thing for finding in alike], 5)


def _lake_page(lake: LakeCheck) -> str:
    parts = [lake.folder]
    if lake.file_system is not None:
        parts.append(f"{lake.file_system} mounted at {lake.mounted_at}")
    if lake.free_bytes is not None:
        parts.append(f"{format_bytes(lake.free_bytes)} of {format_bytes(lake.total_bytes)} free")
    return "\n".join([printable(f"lake: {', '.join(parts)}"), *_findings(lake.findings)])


def _spark_page(spark: SparkCheck) -> str:
    if not spark.installed:
        return "\n".join(["spark: not installed", *_findings(spark.findings)])
    java = "no suitable Java" if spark.java is None else f"Java {spark.java}"
    memory = "" if spark.memory_bytes is None else f" of this machine's {format_bytes(spark.memory_bytes)}"
    jars = f"its jars {'in' if spark.jars_present else 'not yet in'} {spark.jars}"
    line = f"spark: {java}, heap {spark.driver_memory}{memory}, {jars}"
    return "\n".join([printable(line), *_findings(spark.findings)])


def _outcome(report: CheckReport) -> str:
    if report.server is None:
        return "not reached"
    version = f"PostgreSQL {report.server.major}"
    return f"{version}, not ready: see below" if report.refused else f"{version}, ready"
