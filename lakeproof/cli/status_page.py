"""The text of `lakeproof status` for people: a block of lines per source, and tables of views and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakeproof.cli.results import format_bytes, format_table, printable
from lakeproof.drain.slot_health import SlotHealth, lasting
from lakeproof.events import counted, listed
from lakeproof.lake.records.documents import WrittenBy
from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.landing.retention import SpaceReclaimed
from lakeproof.names import TableName
from lakeproof.proof.record import Proved
from lakeproof.snapshot.progress import SnapshotStatus, sentence
from lakeproof.state.problem import Problem
from lakeproof.state.source import SourceStatus, TableReaders
from lakeproof.state.source_state import copy_ahead
from lakeproof.state.status import GroupStatus, StatusReport
from lakeproof.state.views import ViewStatus

if TYPE_CHECKING:
    from lakeproof.compaction.sizes import LakeSizes

_TABLES_SHOWN = 10
_KINDS = {"whole": "all rows", "changed": "what changed"}
# Beyond a month, a time left at the present rate says nothing.
_SOON_S = 30 * 86_400.0


def page(report: StatusReport) -> str:
    """Return the whole text."""
    blocks = ["\n".join(_source(status)) for status in report.sources.values()]
    if report.views:
        rows = [_view_row(view) for view in report.views.values()]
        blocks.append(
            format_table(
                ("view", "cut", "delta version", "sources at cut", "cuts behind", "refreshed", "computed"), rows
            )
        )
        blocks += [printable(f"view {v.view}: {v.not_applied}") for v in report.views.values() if v.not_applied]
    if report.groups:
        rows = [_group_row(group) for group in report.groups.values()]
        blocks.append(
            format_table(("group", "cut", "position", "commits up to", "behind its landings", "slowest"), rows)
        )
    if report.cluster is not None:
        blocks.append(printable(f"Spark's tasks go to the cluster {report.cluster}"))
    parts: list[ViewStatus | GroupStatus] = [*report.views.values(), *report.groups.values()]
    problems = [_problem(problem) for part in parts for problem in part.problems]
    return "\n\n".join(blocks + (["\n".join(problems)] if problems else []))


def _source(status: SourceStatus) -> Iterator[str]:
    yield f"source {status.source}"
    yield f"  server     {_server(status)}"
    yield f"  slot       {_slot(status)}"
    if status.health is not None:
        yield printable(f"  health     {_health(status.health)}")
    yield f"  landing    {_landing(status)}"
    yield f"  lake       {_lake(status)}"
    if status.sizes is not None:
        yield from _sizes(status.sizes)
    if status.lease is not None:
        state = {True: "taken", False: "free", None: "unknown if taken"}[status.lease_taken]
        yield f"  lease      {state}; last taken by {status.lease}"
    if status.snapshot is not None:
        yield printable(f"  snapshot   {_snapshot(status.source, status.snapshot)}")
    yield from _tables(status)
    yield from _readers(status.readers)
    yield from _written_by(status.written_by)
    yield from _lacking(status)
    if status.proved:
        yield f"  proved     {_proved(status)}"
    yield from _proven(status.proved)
    for table, proved in status.proved.items():
        yield from _not_equal(table, proved)
    for problem in status.problems:
        yield _problem(problem)


def _tables(status: SourceStatus) -> Iterator[str]:
    """Yield a line for each table that is held, will be held, or waits."""
    for table, position in status.snapshots.items():
        text = f"the next compaction applies its snapshot at {position}"
        if status.landing is not None and position > status.landing.end_lsn:
            text = copy_ahead(status.source, position, status.landing.end_lsn)
        yield printable(f"  waiting    {table}: {text}")
    for table, held in status.held.items():
        label = "left      " if table in status.left_behind else "held      "
        label = "paused    " if table in status.paused else label
        yield printable(f"  {label} {table}: {held}")
    for table in status.pausing:
        waits = "recorded as paused, and not held for it (yet)"
        yield printable(f"  paused     {table}: {waits}; `lakeproof plan {status.source}` shows what takes it out")
    for table, held in (status.coming or {}).items():
        yield printable(f"  coming     {table}: the next compaction will hold it: {held.reason}; {held.remedy}")
    if status.unpublished:
        new = f"{listed(status.unpublished)}: matched by a pattern but not published"
        yield printable(f"  new        {new}; run `lakeproof apply {status.source}`")


def _readers(readers: Mapping[TableName, TableReaders]) -> Iterator[str]:
    """Yield a line for each feature that readers must know, and one for each table that should need none."""
    for feature in sorted({name for needs in readers.values() for name in needs.features}):
        reasons = {table: needs.features[feature] for table, needs in readers.items() if feature in needs.features}
        same = set(reasons.values())
        named = listed(f"{table} ({reason})" for table, reason in reasons.items())
        if len(same) == 1 and len(reasons) > 1:
            named = f"{len(reasons):,} of {counted(len(readers), 'table')} ({same.pop()})"
        yield printable(f"  readers    must know {feature} for {named}")
    for table, needs in readers.items():
        if needs.keeps:
            yield printable(
                f"  readers    {table}: it has these since before it was configured as portable, and keeps them"
            )


def _written_by(written_by: Mapping[TableName, WrittenBy]) -> Iterator[str]:
    """Yield who wrote how many tables last, and each table that Spark wrote, with the reason."""
    spark = [f"{table} ({by.reason})" for table, by in written_by.items() if by.engine == "spark"]
    if spark:
        yield printable(f"  written    by Spark: {listed(spark)}")
    if here := len(written_by) - len(spark):
        yield f"  written    by this process, in Arrow: {counted(here, 'table')}"


def _not_equal(table: TableName, proved: Proved) -> Iterator[str]:
    if proved.status != "equal":
        yield printable(f"  proved     {table}: {_one_proved(proved)}")
    history = proved.history
    if history is not None and history.status != "equal":
        yield printable(f"  proved     history of {table}: {history.status} ({history.time}): {history.reason}")


def _proven(proved: Mapping[TableName, Proved]) -> Iterator[str]:
    """Yield the position up to which each table is proven, the oldest proof first."""
    verified = [(proof.verified, proof.whole, table) for table, proof in proved.items() if proof.verified is not None]
    for last, whole, table in sorted(verified, key=lambda each: (each[0].time, each[2]))[:_TABLES_SHOWN]:
        beside = "" if whole is None or whole.time == last.time else f", whole at {whole.position} ({whole.time})"
        yield printable(
            f"  proven     {table}: equal at {last.position} ({last.time}), by a proof of {_KINDS[last.kind]}{beside}"
        )
    if len(verified) > _TABLES_SHOWN:
        yield f"  proven     {len(verified) - _TABLES_SHOWN:,} more later than these; `--json` has all"


def _lacking(status: SourceStatus) -> Iterator[str]:
    """Yield a line for each published table that is in no lake, and for days and views that are not as they should be."""
    lacking = status.shortfall
    if lacking is None:
        return
    if lacking.entering:
        yield printable(
            f"  waiting    {listed(lacking.entering)}: the next compaction brings what the stream has of it"
        )
    yield from (printable(f"  lacking    {sentence}") for sentence in lacking.sentences(status.source))


def _proved(status: SourceStatus) -> str:
    proved, lacking = status.proved, status.shortfall
    unproved = tuple[TableName, ...]() if lacking is None else lacking.unproved
    equal = [p.verified for p in proved.values() if p.status == "equal" and p.verified is not None]
    compared = sum(p.rows is not None for p in proved.values())
    if not compared:
        last = max((p.verified.time for p in proved.values() if p.verified is not None), default=None)
        never = "never proved equal" if last is None else f"last equal at {last}"
        return f"{counted(len(proved), 'table')}, not compared ({never})"
    not_now = len(proved.keys() - set(unproved)) - compared
    rest, total = f"; {not_now:,} not compared" if not_now else "", counted(compared + len(unproved), "table")
    if not equal:
        return f"none of {total} equal{rest}"
    oldest = min(equal, key=lambda verified: verified.time)
    since = f"each since {oldest.time} or later, at {oldest.position} or later"
    return f"{len(equal):,} of {total} equal, {since}{rest}{_histories(proved)}"


def _histories(proved: Mapping[TableName, Proved]) -> str:
    histories = [p.history for p in proved.values() if p.history is not None]
    equal = [h.time for h in histories if h.status == "equal"]
    return (
        f"; {len(equal):,} of {counted(len(histories), 'history', 'histories')}, each since {min(equal)} or later"
        if equal
        else ""
    )


def _one_proved(proved: Proved) -> str:
    equal = "never proved equal" if proved.verified is None else f"last equal at {proved.verified.position}"
    reason = f": {proved.reason}" if proved.reason else ""
    if proved.rows is None:
        differed = "" if proved.differed is None else f", it differed at {proved.differed.position}"
        return f"not compared ({equal}{differed}), {proved.status} ({proved.time}){reason}"
    return f"{proved.status} ({proved.time}), {equal}{reason}"


def _server(status: SourceStatus) -> str:
    if status.server is None:
        return "not reached (see below)"
    server = status.server
    standby = ", in recovery" if server.in_recovery else ""
    standby += ", reached over a network without encryption" if server.exposed else ""
    return (
        f"PostgreSQL {server.major}, database {printable(server.database)}, WAL ends at {server.current_lsn}{standby}"
    )


def _slot(status: SourceStatus) -> str:
    slot = status.slot
    if slot is None:
        return "-"
    use = f"in use by process {slot.active_pid}" if slot.active else "not in use"
    safe = "" if slot.safe_wal_size is None else f", lost after {format_bytes(slot.safe_wal_size)} more"
    return (
        f"{slot.name}, {use}, confirmed {slot.confirmed_flush_lsn or '-'}, restart {slot.restart_lsn or '-'}, "
        f"keeps {format_bytes(slot.retained_bytes)} of WAL ({slot.wal_status or 'no status'}{safe})"
    )


def _health(health: SlotHealth) -> str:
    parts = ["ok" if not health.reasons else f"{health.level.value}: {'; '.join(map(str, health.reasons))}"]
    if health.wal_bytes_per_s is not None and health.rate_over_s is not None:
        parts.append(
            f"{format_bytes(round(health.wal_bytes_per_s))} of WAL per second over {health.rate_over_s:,.0f} s"
        )
    if health.seconds_left is not None and health.seconds_left < _SOON_S and not health.is_ending:
        parts.append(f"invalidated in {lasting(health.seconds_left)} at that rate ({health.limit})")
    return ", ".join(parts)


def _landing(status: SourceStatus) -> str:
    landing = status.landing
    if landing is None:
        return "-"
    lag = "" if status.drain_lag_bytes is None else f", {format_bytes(status.drain_lag_bytes)} of WAL behind the server"
    return f"ends at {landing.end_lsn} (manifest {landing.number:,} of incarnation {landing.incarnation}){lag}"


def _lake(status: SourceStatus) -> str:
    cut = status.cut
    if cut is None:
        return "no cut yet"
    lag = "" if status.lake_lag_bytes is None else f", {format_bytes(status.lake_lag_bytes)} of WAL behind the landing"
    committed = "" if cut.commit_time is None else f", commits up to {cut.commit_time}"
    return f"cut {cut.number:,} at {cut.position}, {counted(cut.tables, 'table')}{committed}{lag}"


def _sizes(sizes: LakeSizes) -> Iterator[str]:
    shared = "" if not sizes.counted_again else f" of which {format_bytes(sizes.counted_again)} are shared,"
    reclaimable = "" if sizes.reclaimable is None else f"; maintenance would free {_space(sizes.reclaimable)} now"
    parts = {"landing": sizes.landing, "snapshots": sizes.snapshots, "current": sizes.current, "history": sizes.history}
    spaces = ", ".join(f"{name} {_space(space)}" for name, space in parts.items())
    yield f"  sizes      {spaces},{shared} {counted(sizes.cuts, 'cut')} kept{reclaimable}"
    for table, size in sizes.tables.items():
        yield printable(f"  size       {table}: current {_space(size.current)}, history {_space(size.history)}")


def _space(space: SpaceReclaimed) -> str:
    return f"{format_bytes(space.bytes)} in {counted(space.files, 'file')}"


def _snapshot(source: str, status: SnapshotStatus) -> str:
    copied = (
        f"at {status.consistent_point}: {status.tables_done:,} of {counted(status.tables, 'table')} copied,"
        f" {counted(status.rows, 'row')}, {format_bytes(status.bytes)} of files"
    )
    if status.running is not False:
        runner = f"run by {status.holder}" if status.running else f"perhaps run by {status.holder}"
        progress = (
            "" if status.progress is None else f"; {int(100 * status.progress.fraction)} %: {sentence(status.progress)}"
        )
        return f"{runner}, {copied}{progress}"
    interrupted = "" if status.interrupted is None else f"interrupted ({status.interrupted}), "
    return f"{interrupted}{copied}; missing: {listed(status.missing)}; run `lakeproof bootstrap {source}` to copy them"


def _computed(cut: ViewCut) -> str:
    """Return how a view was computed last, e.g. `keys (120 changed, 5,000 read)` or `full: its definition has changed`."""
    if cut.changed_rows is None:
        return cut.strategy if cut.reason is None else f"{cut.strategy}: {cut.reason}"
    return f"{cut.strategy} ({cut.changed_rows:,} changed, {cut.rows_read:,} read)"


def _view_row(view: ViewStatus) -> tuple[object, ...]:
    if view.cut is None:
        return (view.view, None, None, None, None, None, None)
    read = [f"{name} {number}" for name, number in sorted(view.cut.sources.items())]
    read += [f"{place} version {pinned.delta_version}" for place, pinned in sorted(view.cut.external.items())]
    sources = ", ".join(read)
    behind = sum(view.behind.values()) if view.behind.keys() >= view.cut.sources.keys() else None
    return (
        view.view,
        int(view.cut.number),
        view.cut.delta_version,
        sources,
        behind,
        view.cut.created_at,
        _computed(view.cut),
    )


def _group_row(group: GroupStatus) -> tuple[object, ...]:
    cut = group.cut
    lag = None if group.lag_bytes is None else format_bytes(group.lag_bytes)
    if cut is None:
        return (group.group, None, None, None, None, group.slowest)
    return (group.group, cut.number, cut.position, cut.commit_time, lag, group.slowest)


def _problem(problem: Problem) -> str:
    return printable(f"  problem    {problem.thing}: {problem.reason}; {problem.remedy}")
