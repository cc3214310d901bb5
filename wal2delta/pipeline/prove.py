"""Prove that the lake holds what the source holds, table by table, at one position.

The forms and the comparison belong to `wal2delta.proof`, the cycle that ends at the position to `pipeline.compact`.

    lease ─ temporary slot with its snapshot at C ─ source's buckets under the snapshot ─ drain until the landing has C ─
    cycle that ends at C ─ lake's buckets at that cut ─ differing buckets narrowed to keys, the snapshot still open

The lease comes first, so that no other cycle can pass C before this one ends there. An ordinary snapshot would not do: it
has no LSN. Making the slot waits for every open writing transaction; where that takes too long nothing was compared, and
the tables are blocked, which is not the same as different.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from wal2delta.config.model import Config, SourceConfig
from wal2delta.config.table_names import write_table
from wal2delta.drain.until import Until
from wal2delta.errors import ConfigError, TransientError
from wal2delta.lake.columns import in_lake
from wal2delta.lake.documents import Cut, CutTable
from wal2delta.lake.evolution import describe_change
from wal2delta.lake.lease import Lease, hold_lease
from wal2delta.lake.open import read_layer
from wal2delta.lake.records import newest_cut
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import open_store
from wal2delta.names import TableName
from wal2delta.pipeline.bootstrap import bootstrap
from wal2delta.pipeline.compact import compact
from wal2delta.pipeline.drain import drain
from wal2delta.postgres.catalog import PublishedTable, read_tables
from wal2delta.postgres.connection import Connection, close_quietly, connect
from wal2delta.postgres.snapshot import SnapshotSession, TableMovedError
from wal2delta.proof.compare import Buckets, DifferingKey, differing, differing_keys, rows_in, to_narrow
from wal2delta.proof.lake_form import lake_buckets, lake_rows
from wal2delta.proof.record import record
from wal2delta.proof.result import ProofReport, Status, TableProof
from wal2delta.proof.source_side import source_buckets, source_rows
from wal2delta.report import Event, Report, Stop, silent

__all__ = ["ProofReport", "TableProof", "prove"]

_ALL_ACTIONS = frozenset({"insert", "update", "delete", "truncate"})


@dataclass(frozen=True, slots=True)
class _Proof:
    """What one proof works with; `conn` is idle outside of a guard."""

    config: Config
    source: SourceConfig
    spark: SparkSession
    session: SnapshotSession
    conn: Connection
    report: Report

    @property
    def paths(self) -> LakePaths:
        return LakePaths(self.config.lake, self.source.name)


@dataclass(frozen=True, slots=True)
class _SourceSide:
    """A table as the snapshot has it: its buckets, or why it could not be read."""

    table: PublishedTable
    buckets: Buckets | None
    blocked: str | None = None


def prove(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    tables: Sequence[TableName] | None,
    spark: SparkSession,
    report: Report = silent,
    stop: Stop | None = None,
    *,
    repair: bool = False,
) -> ProofReport:
    """Compare `tables` (all that are published or in the lake, where None) of the source `name` with the lake.

    With `repair` the tables that differ are snapshotted again, entered as a correction, and proved once more. Raises
    ConfigError for a name that is not known or a table that is neither published nor in the lake, TransientError where
    another process holds the lease or the source can't be reached, else what `drain` and `compact` raise.
    """
    stop = Stop() if stop is None else stop
    found = _prove_once(config, name, tables, spark, report, stop)
    wrong = found.with_status("differs")
    if not repair or not wrong or stop.requested:
        return found
    report(
        Event("prove.repair", f"snapshotting {len(wrong)} differing tables again", {"tables": [t.key for t in wrong]})
    )
    bootstrap(config, name, wrong, report, stop)
    return _prove_once(config, name, tables, spark, report, stop)


def _prove_once(  # noqa: PLR0917  as prove
    config: Config, name: str, tables: Sequence[TableName] | None, spark: SparkSession, report: Report, stop: Stop
) -> ProofReport:
    source = config.source(name)
    paths = LakePaths(config.lake, name)
    store = open_store(config.lake)
    chosen = _chosen(source, tables, newest_cut(store, paths))
    with hold_lease(store, paths) as lease:
        slot = SnapshotSession(
            source.dsn,
            f"wal2delta_proof_{secrets.token_hex(6)}",
            temporary=True,
            lock_timeout_s=source.snapshot.lock_timeout_s,
        )
        with ExitStack() as open_until_compared:
            try:
                session = open_until_compared.enter_context(slot)
            except TransientError as error:
                blocked = TableProof("blocked", reason=f"{error.reason}; {error.remedy}")
                return ProofReport(name, None, dict.fromkeys(chosen, blocked))
            conn = connect(source.dsn, "wal2delta proof")
            open_until_compared.callback(close_quietly, conn)
            found = _at_consistent_point(_Proof(config, source, spark, session, conn, report), chosen, lease, stop)
            cut = newest_cut(store, paths)
            if cut is not None:
                record(store, paths, cut.incarnation, found)
            return found


def _chosen(source: SourceConfig, tables: Sequence[TableName] | None, cut: Cut | None) -> list[TableName]:
    """The tables to be proved; raises ConfigError for one that is neither published nor in the lake.

    The lake's tables that the source publishes no more are among them: nothing tells us of their changes.
    """
    with connect(source.dsn, "wal2delta proof") as conn:
        published = read_tables(conn, source)
    known = [*published, *sorted(set(() if cut is None else cut.tables) - set(published))]
    for table in tables or ():
        if table not in known:
            reason = f"publication {source.publication} does not have it, and the lake neither"
            raise ConfigError(f"table {table}", reason, "name a published table")
    return known if tables is None else list(dict.fromkeys(tables))


def _at_consistent_point(proof: _Proof, names: Sequence[TableName], lease: Lease, stop: Stop) -> ProofReport:
    point = proof.session.consistent_point
    proof.report(Event("prove.point", f"comparing at {point}", {"consistent_point": str(point), "tables": len(names)}))
    sides = _read_source(proof, names, stop)
    name = proof.source.name
    drain(proof.config, name, Until.lsn(point), proof.report, stop)
    if stop.requested:
        blocked = TableProof("blocked", reason="it was asked to stop")
        return ProofReport(name, point, dict.fromkeys(names, blocked))
    compact(proof.config, name, proof.spark, proof.report, stop, end=point, lease=lease)
    cut = newest_cut(open_store(proof.config.lake), proof.paths)
    proofs = {}
    for table in names:
        proofs[table] = _prove_table(proof, table, sides.get(table), cut)
        proof.report(_event(table, proofs[table], proof))
    return ProofReport(name, point, proofs)


def _read_source(proof: _Proof, names: Sequence[TableName], stop: Stop) -> dict[TableName, _SourceSide]:
    """Every table's buckets under the snapshot, one table's lock at a time."""
    conn = proof.session.connect("wal2delta proof")
    try:
        published = read_tables(conn, proof.source, only=set(names))
    finally:
        close_quietly(conn)
    sides = {}
    for table, found in published.items():
        if stop.requested:
            sides[table] = _SourceSide(found, None, "it was asked to stop")
            continue
        try:
            with proof.session.guard(proof.conn, proof.source, found):
                buckets = source_buckets(proof.conn, found, proof.source.buckets)
        except (TableMovedError, TransientError) as error:
            sides[table] = _SourceSide(found, None, f"{error.reason}; {error.remedy}")
        else:
            sides[table] = _SourceSide(found, buckets)
            rows = rows_in(buckets)
            proof.report(Event("prove.source", f"{table}: {rows} rows read", {"table": table.key, "rows": rows}))
    return sides


def _prove_table(proof: _Proof, table: TableName, side: _SourceSide | None, cut: Cut | None) -> TableProof:
    if side is None or side.buckets is None:
        return _unread(table, side, cut)
    source = rows_in(side.buckets)
    at = _in_lake(proof, table, side.table, cut)
    if isinstance(at, TableProof):
        return replace(at, source_rows=source)
    shape = in_lake(at.version)
    current = read_layer(proof.spark, proof.paths, table, at)
    lake = lake_buckets(current, shape, proof.source.buckets)
    wrong = differing(side.buckets, lake)
    if not wrong:
        return TableProof("equal", source, rows_in(lake))
    wanted = to_narrow(side.buckets, lake)
    missing = sorted(_ALL_ACTIONS - side.table.actions)
    reason = f"{len(wrong)} of {proof.source.buckets} buckets differ"
    if len(wanted) < len(wrong):
        reason += f"; the keys named are those of {len(wanted)} of them"
    if missing:
        reason = f"its publication does not send {', '.join(missing)}, and {reason}"
    keys: list[DifferingKey] = []
    try:
        with proof.session.guard(proof.conn, proof.source, side.table):
            rows = source_rows(proof.conn, side.table, proof.source.buckets, wanted)
    except (TableMovedError, TransientError) as error:
        reason += f"; the keys could not be named: {error.reason}"
    else:
        there = lake_rows(current, shape, proof.source.buckets, wanted)
        keys = differing_keys(side.table.version.key, rows, there)
    status: Status = "not applicable" if missing else "differs"
    return TableProof(status, source, rows_in(lake), len(wrong), tuple(keys), reason)


def _unread(table: TableName, side: _SourceSide | None, cut: Cut | None) -> TableProof:
    """What is said of a table that the source's side does not have."""
    if cut is not None and table in cut.held:
        return TableProof("held", reason=str(cut.held[table]))
    if side is not None:
        return TableProof("blocked", reason=side.blocked)
    reason = "it is not published any more (dropped, renamed or taken out), so the lake does not follow it"
    return TableProof("held", reason=f"{reason}; what the lake has of it is kept (docs/schema-changes.md)")


def _in_lake(proof: _Proof, table: TableName, published: PublishedTable, cut: Cut | None) -> CutTable | TableProof:
    """The table at the position, or why the lake does not have it there."""
    if cut is not None and table in cut.held:
        return TableProof("held", reason=str(cut.held[table]))
    if cut is None or table not in cut.tables:
        remedy = (
            f"run `wal2delta bootstrap {proof.source.name} --tables {shlex.quote(write_table(table))}`, then compact"
        )
        return TableProof("missing", reason=f"it is not in the lake yet; {remedy}")
    at = cut.tables[table]
    point = proof.session.consistent_point
    if cut.position != point or at.at_lsn != point:
        return TableProof("blocked", reason=f"the lake has it at {at.at_lsn}, not at {point}; try again")
    if at.version.id != published.version.id:
        change = describe_change(at.version, published.version)
        return TableProof(
            "blocked", reason=f"{change}; the next change of a row brings that into the lake, or a snapshot"
        )
    return at


def _event(table: TableName, made: TableProof, proof: _Proof) -> Event:
    reason = f": {made.reason}" if made.reason else ""
    return Event(
        "prove.table",
        f"{table} {made.status}{reason}",
        {
            "table": table.key,
            "status": made.status,
            "source_rows": made.source_rows,
            "lake_rows": made.lake_rows,
            "differing_buckets": made.differing_buckets,
            "position": str(proof.session.consistent_point),
        },
    )
