"""Proves that the lake holds what the source holds, table by table, at one position.

Comparing is in `tables.py` and `changed.py`, the cycle that ends at the position in `lakeproof.compaction`. Spark starts for
whatever needs it, and for nothing else.

    under the lease   temporary slot with its snapshot at C ─ drain until the landing has C ─ cycle that ends at C
    without it        source's buckets under the snapshot ─ lake's buckets at that cut ─ differing buckets narrowed to keys

The lease comes first, so that no other cycle can pass C before this one ends there. Then cycles go on: a cut and the open
snapshot stay what they are, however long both are read. Maintenance, which removes cuts, waits for the proof.

An ordinary snapshot would not do: it has no LSN. Making the slot waits for every open writing transaction; if that takes
too long nothing is compared, and the tables are blocked, which is not the same as different.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from lakeproof.compaction.source import compact_under
from lakeproof.config.mistakes import table_hint
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.supervisor import Supervisor
from lakeproof.drain.until import Until
from lakeproof.errors import ConfigError, DefiniteError, TransientError
from lakeproof.events import Event, RunControl
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.lease import Lease, hold_lease
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.connections.connect import close_quietly, connect, connect_for_long_statements
from lakeproof.postgres.copying.snapshot import SnapshotSession
from lakeproof.proof.changed import compare_changed
from lakeproof.proof.keys_to_repair import KeysToRepair
from lakeproof.proof.lake.by_itself import LakePart, LakeScope, prove_lake
from lakeproof.proof.record import Basis, one_proof, record
from lakeproof.proof.repair import Repair, copy_keys
from lakeproof.proof.result import ProofReport, TableProof
from lakeproof.proof.tables import OpenProof, compare_all
from lakeproof.snapshot.copy.keyed_copy import remove_copies
from lakeproof.storage.disk import disk_errors
from lakeproof.storage.source_lake import SourceLake

# A proof of changes, which comes again within minutes, waits for nobody longer than so.
CHANGED_LOCK_S = 2.0


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """A request beside comparing tables: `repair` those that differ, prove all of `history`, or just `part`.

    `changed`: only what changed since each table's last proof is compared, and nothing of the lake by itself.
    """

    repair: bool = False
    history: bool = False
    part: LakePart | None = None
    changed: bool = False

    def __post_init__(self) -> None:
        if self.changed and (self.repair or self.history or self.part is not None):
            reason = "--changed compares changes with the source, and nothing else"
            raise ConfigError("lakeproof prove", reason, "leave --repair, --history, --histories and --views out")


@dataclass(frozen=True, slots=True)
class Proving:
    """One proof of those that a request takes: `to_repair` gets the keys that differ, its cycle enters those of `repair`."""

    request: ProofRequest
    to_repair: dict[TableName, KeysToRepair] | None = None
    repair: Repair | None = None


def check_prove(config: Config, name: str, tables: Sequence[TableName] | None) -> None:
    """Raise errors that need neither Spark nor a row: no landing, an unknown table. Needs the server."""
    source, lake = config.source(name), SourceLake.open(config.location, name)
    if newest_incarnation(lake) is None:
        raise no_landing(lake)
    if tables is not None:
        _chosen(source, tables, newest_cut(lake))


def prove_once(  # noqa: PLR0917  as prove
    config: Config,
    name: str,
    tables: Sequence[TableName] | None,
    spark: SparkOnDemand,
    control: RunControl,
    of: Proving,
) -> ProofReport:
    """Make one proof."""
    request = of.request
    source = config.source(name)
    source_lake = SourceLake.open(config.location, name)
    check_prove(config, name, None)
    chosen = _chosen(source, tables, newest_cut(source_lake))
    with at_work(spark, config.location), one_proof(source_lake, of_changes=request.changed):
        slot = SnapshotSession(
            source.dsn,
            f"lakeproof_proof_{secrets.token_hex(6)}",
            temporary=True,
            lock_timeout_s=_lock_timeout_s(source, request),
        )
        with ExitStack() as open_until_compared:
            with hold_lease(source_lake, spark, control.stop) as lease:
                try:
                    session = open_until_compared.enter_context(slot)
                except TransientError as error:
                    blocked = TableProof("blocked", reason=f"{error.reason}; {error.remedy}")
                    return ProofReport(name, None, dict.fromkeys(chosen, blocked))
                conn = connect_for_long_statements(source.dsn, "lakeproof proof", control.stop)
                open_until_compared.callback(close_quietly, conn)
                running = OpenProof(
                    config, source, source_lake, spark, session, conn, control.report, to_repair=of.to_repair
                )
                cut = _cut_at_point(running, len(chosen), lease, control, of.repair)
            compare = compare_changed if request.changed else compare_all
            proof = compare(running, chosen, cut, control.stop)
        if cut is None:
            return proof
        bases = _bases(running, proof, cut)
        # The comparison is recorded before more is read, which may take long.
        record(source_lake, cut.incarnation, proof, bases)
        if request.changed:
            return proof
        scope = LakeScope(chosen, request.history, request.part, running.current)
        lake = prove_lake(config, spark, control, source_lake, scope, cut=cut)
        proof = replace(proof, lake=lake)
        record(source_lake, cut.incarnation, proof, bases)
        return proof


def _lock_timeout_s(source: SourceConfig, request: ProofRequest) -> float:
    """Return for how long a proof waits for writing transactions, and its tables' locks, with the lease in its hand."""
    configured = source.snapshot.lock_timeout_s
    return min(configured, CHANGED_LOCK_S) if request.changed else configured


def _bases(running: OpenProof, proof: ProofReport, cut: Cut) -> dict[TableName, Basis]:
    """Return what the equal tables were, for the proofs of changes after this one."""
    bases = dict[TableName, Basis]()
    for table in proof.with_status("equal"):
        if table in cut.tables and table in running.catalog:
            basis = Basis.of(running.lake, table, cut.tables[table], running.catalog[table])
            if basis is not None:
                bases[table] = basis
    return bases


def _chosen(source: SourceConfig, tables: Sequence[TableName] | None, cut: Cut | None) -> list[TableName]:
    """Return the tables to be proved; raises ConfigError for one that is neither published nor in the lake.

    Tables of the lake that the source publishes no more are included: no stream brings their changes.
    """
    with connect(source.dsn, "lakeproof proof") as conn:
        refused: dict[TableName, DefiniteError] = {}
        published = [*read_tables(conn, source, refused=refused), *refused]
    existing = [*published, *sorted(set(() if cut is None else cut.tables) - set(published))]
    for table in tables or ():
        if table not in existing:
            reason = f"publication {source.publication} does not have it, and the lake neither"
            raise ConfigError(f"table {table}", reason, table_hint(table, existing, "name a published table"))
    return existing if tables is None else list(dict.fromkeys(tables))


def _cut_at_point(
    proof: OpenProof, tables: int, lease: Lease, control: RunControl, repair: Repair | None
) -> Cut | None:
    """Bring the lake to the snapshot's position, and return its newest cut."""
    point = proof.session.consistent_point
    proof.report(Event("prove.point", f"comparing at {point}", {"consistent_point": str(point), "tables": tables}))
    # Before the landing is drained, which may take a while: rows are read while the tables are as at the snapshot.
    keyed = None if repair is None else copy_keys(proof, repair, control.stop)
    with disk_errors(proof.config.lake):
        Supervisor(proof.config, proof.source, Until.lsn(point), control=control).run()
    if not control.stop.requested:
        compact_under(lease, proof.config, proof.spark, control, end=point, keyed=keyed)
        if repair is not None:
            remove_copies(proof.lake)
    return newest_cut(proof.lake)
