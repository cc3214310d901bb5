"""`lakeproof status` for people: a block of lines per source, a table of views.

What there is to say belongs to `lakeproof.commands.status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakeproof.cli.results import grid, octets, plain
from lakeproof.commands.status import Problem, SourceStatus, StatusReport, ViewStatus
from lakeproof.drain.slot_health import SlotHealth
from lakeproof.landing.retention import Freed
from lakeproof.names import TableName
from lakeproof.proof.record import Proved
from lakeproof.snapshot.progress import sentence
from lakeproof.snapshot.status import SnapshotStatus

if TYPE_CHECKING:
    from lakeproof.commands.sizes import LakeSizes

_TABLES_SHOWN = 10


def page(report: StatusReport) -> str:
    """The whole page."""
    blocks = ["\n".join(_source(status)) for status in report.sources.values()]
    if report.views:
        rows = [_view_row(view) for view in report.views.values()]
        blocks.append(grid(("view", "cut", "delta version", "sources at cut", "cuts behind", "refreshed"), rows))
    problems = [_problem(problem) for view in report.views.values() for problem in view.problems]
    return "\n\n".join(blocks + (["\n".join(problems)] if problems else []))


def _source(status: SourceStatus) -> Iterator[str]:
    yield f"source {status.source}"
    yield f"  server     {_server(status)}"
    yield f"  slot       {_slot(status)}"
    if status.health is not None:
        yield plain(f"  health     {_health(status.health)}")
    yield f"  landing    {_landing(status)}"
    yield f"  lake       {_lake(status)}"
    if status.sizes is not None:
        yield from _sizes(status.sizes)
    if status.lease is not None:
        state = {True: "held", False: "free", None: "not known whether held"}[status.lease_held]
        yield f"  lease      {state}; last taken by {status.lease}"
    if status.snapshot is not None:
        yield plain(f"  snapshot   {_snapshot(status.source, status.snapshot)}")
    yield from _tables(status)
    if status.proved:
        yield f"  proved     {_proved(status.proved)}"
    for table, proved in status.proved.items():
        yield from _not_equal(table, proved)
    for problem in status.problems:
        yield _problem(problem)


def _tables(status: SourceStatus) -> Iterator[str]:
    """The tables that stand still, will, or wait."""
    for table, position in status.snapshots.items():
        yield plain(f"  waiting    {table}: its snapshot at {position} enters with the next compaction")
    for table, held in status.held.items():
        told = "left      " if table in status.left_behind else "held      "
        yield plain(f"  {told} {table}: {held}")
    for table, held in (status.coming or {}).items():
        yield plain(f"  coming     {table}: the next compaction will hold it: {held.reason}; {held.remedy}")
    if status.unpublished:
        yield plain(f"  new        {_unpublished(status)}")


def _not_equal(table: TableName, proved: Proved) -> Iterator[str]:
    if proved.status != "equal":
        yield plain(f"  proved     {table}: {_one_proved(proved)}")
    history = proved.history
    if history is not None and history.status != "equal":
        yield plain(f"  proved     history of {table}: {history.status} ({history.at}): {history.reason}")


def _unpublished(status: SourceStatus) -> str:
    shown = ", ".join(map(str, status.unpublished[:_TABLES_SHOWN]))
    more = f" and {len(status.unpublished) - _TABLES_SHOWN:,} more" if len(status.unpublished) > _TABLES_SHOWN else ""
    return f"{shown}{more}: not published, though a pattern matches; run `lakeproof apply {status.source}`"


def _proved(proved: Mapping[TableName, Proved]) -> str:
    equal = [p.verified for p in proved.values() if p.status == "equal" and p.verified is not None]
    compared = sum(p.rows is not None for p in proved.values())
    if not compared:
        last = max((p.verified.at for p in proved.values() if p.verified is not None), default=None)
        return (
            f"{len(proved):,} tables, not compared ({'never seen equal' if last is None else f'last equal at {last}'})"
        )
    left = "" if compared == len(proved) else f"; {len(proved) - compared:,} not compared"
    if not equal:
        return f"none of {compared:,} tables equal{left}"
    oldest = min(equal, key=lambda verified: verified.at)
    since = f"each since {oldest.at} or later, at {oldest.position} or later"
    return f"{len(equal):,} of {compared:,} tables equal, {since}{left}{_histories(proved)}"


def _histories(proved: Mapping[TableName, Proved]) -> str:
    histories = [p.history for p in proved.values() if p.history is not None]
    equal = [h.at for h in histories if h.status == "equal"]
    return f"; {len(equal):,} of {len(histories):,} histories, each since {min(equal)} or later" if equal else ""


def _one_proved(proved: Proved) -> str:
    equal = "never seen equal" if proved.verified is None else f"last equal at {proved.verified.position}"
    why = f": {proved.reason}" if proved.reason else ""
    if proved.rows is None:
        differed = "" if proved.differed is None else f", it differed at {proved.differed.position}"
        return f"not compared ({equal}{differed}), {proved.status} ({proved.at}){why}"
    return f"{proved.status} ({proved.at}), {equal}{why}"


def _server(status: SourceStatus) -> str:
    if status.server is None:
        return "not seen (below)"
    server = status.server
    standby = ", in recovery" if server.in_recovery else ""
    standby += ", reached over a network in the clear" if server.exposed else ""
    return f"PostgreSQL {server.major}, database {plain(server.database)}, WAL ends at {server.current_lsn}{standby}"


def _slot(status: SourceStatus) -> str:
    slot = status.slot
    if slot is None:
        return "-"
    use = f"in use by process {slot.active_pid}" if slot.active else "not in use"
    safe = "" if slot.safe_wal_size is None else f", lost after {octets(slot.safe_wal_size)} more"
    return (
        f"{slot.name}, {use}, confirmed {slot.confirmed_flush_lsn or '-'}, restart {slot.restart_lsn or '-'}, "
        f"keeps {octets(slot.retained_bytes)} of WAL ({slot.wal_status or 'no status'}{safe})"
    )


def _health(health: SlotHealth) -> str:
    told = ["ok" if not health.reasons else f"{health.level.value}: {'; '.join(health.reasons)}"]
    if health.wal_bytes_per_s is not None and health.rate_over_s is not None:
        told.append(f"{octets(round(health.wal_bytes_per_s))} of WAL per second over {health.rate_over_s:,.0f} s")
    if health.seconds_left is not None:
        told.append(f"invalidated in {health.seconds_left:,.0f} s at that rate ({health.limit})")
    return ", ".join(told)


def _landing(status: SourceStatus) -> str:
    landing = status.landing
    if landing is None:
        return "-"
    lag = "" if status.drain_lag_bytes is None else f", {octets(status.drain_lag_bytes)} of WAL behind the server"
    return f"ends at {landing.end_lsn} (manifest {landing.number:,} of incarnation {landing.incarnation}){lag}"


def _lake(status: SourceStatus) -> str:
    cut = status.cut
    if cut is None:
        return "no cut yet"
    lag = "" if status.lake_lag_bytes is None else f", {octets(status.lake_lag_bytes)} of WAL behind the landing"
    committed = "" if cut.commit_time is None else f", commits up to {cut.commit_time}"
    return f"cut {cut.number:,} at {cut.position}, {cut.tables:,} tables{committed}{lag}"


def _sizes(sizes: LakeSizes) -> Iterator[str]:
    rest = "" if sizes.reclaimable is None else f"; maintenance would remove {_room(sizes.reclaimable)} now"
    yield (
        f"  sizes      landing {_room(sizes.landing)}, current {_room(sizes.current)}, history {_room(sizes.history)},"
        f" {sizes.cuts:,} cuts kept{rest}"
    )
    for table, size in sizes.tables.items():
        yield plain(f"  size       {table}: current {_room(size.current)}, history {_room(size.history)}")


def _room(room: Freed) -> str:
    return f"{octets(room.bytes)} in {room.files:,} files"


def _snapshot(source: str, at: SnapshotStatus) -> str:
    done = (
        f"at {at.consistent_point}: {at.tables_done:,} of {at.tables:,} tables count,"
        f" {at.rows:,} rows, {octets(at.bytes)} of files"
    )
    if at.running is not False:
        who = f"run by {at.holder}" if at.running else f"perhaps run by {at.holder}"
        told = "" if at.progress is None else f"; {int(100 * at.progress.fraction)} %: {sentence(at.progress)}"
        return f"{who}, {done}{told}"
    named = ", ".join(str(table) for table in at.missing[:_TABLES_SHOWN])
    more = f" and {len(at.missing) - _TABLES_SHOWN:,} more" if len(at.missing) > _TABLES_SHOWN else ""
    why = "" if at.interrupted is None else f"interrupted ({at.interrupted}), "
    return f"{why}{done}; missing: {named}{more}; run `lakeproof bootstrap {source}`, which copies what is missing"


def _view_row(view: ViewStatus) -> tuple[object, ...]:
    if view.cut is None:
        return (view.view, None, None, None, None, None)
    sources = ", ".join(f"{name} {number}" for name, number in sorted(view.cut.sources.items()))
    behind = sum(view.behind.values()) if view.behind.keys() >= view.cut.sources.keys() else None
    return (view.view, int(view.cut.number), view.cut.delta_version, sources, behind, view.cut.created_at)


def _problem(problem: Problem) -> str:
    return plain(f"  problem    {problem.thing}: {problem.reason}; {problem.remedy}")
