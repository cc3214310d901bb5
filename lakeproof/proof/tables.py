"""Compares the tables of a proof at its position: the source's buckets under the snapshot, the lake's at the cut.

Making the snapshot and the cut does not belong here (`run`), nor correcting what differs (`repair`).

The number of a table's buckets follows the rows that the log of the lake's table has. So the lake's tables are opened first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lakeproof.concurrently import few_at_a_time
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import DefiniteError, UnreadableRowsError, manual
from lakeproof.events import Report, Stop, counted, listed
from lakeproof.lake.delta.log.commits import LogGapError
from lakeproof.lake.planning.schema_change import describe_change, only_configured
from lakeproof.lake.planning.schema_changes import waiting
from lakeproof.lake.planning.set_aside import left_behind, paused_among
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.held import describe_held, snapshot_command
from lakeproof.lake.spark.driver import spark_errors
from lakeproof.lake.spark.failures import reading, reason_of
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.catalog.tables import ACTIONS, PublishedTable
from lakeproof.postgres.catalog.unchanged import read_catalog, table_digest
from lakeproof.postgres.checks.findings import refused_tables
from lakeproof.postgres.checks.tables import schema_findings
from lakeproof.postgres.connections.connect import Connection, close_quietly
from lakeproof.postgres.copying.keys import why_not_by_keys
from lakeproof.postgres.copying.snapshot import SnapshotSession
from lakeproof.proof.compare import (
    Buckets,
    FilledBuckets,
    ProofRow,
    differing_buckets,
    differing_keys,
    rows_in,
    to_narrow,
)
from lakeproof.proof.keys_to_repair import ROWS_MAX, KeysToRepair, keys_to_repair
from lakeproof.proof.lake.in_arrow import TooLargeError
from lakeproof.proof.lake.side import LakeReader, LakeSide
from lakeproof.proof.result import ProofReport, Status, TableProof, compared
from lakeproof.proof.source.read import UNREAD, Asked, SourceSide, read_source
from lakeproof.proof.source.side import source_rows
from lakeproof.proof.source.unsent import differences, judge
from lakeproof.snapshot.folder import find_snapshot
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.exact_kinds import key_columns

_TABLES_SHOWN = 5
_CHANGES = manual("What changes of the source's tables do to the lake", "The way out")


# The rows that both sides have in some buckets, each with its bucket, in their order.
_Rows: TypeAlias = "tuple[Sequence[tuple[int, ProofRow]], Sequence[tuple[int, ProofRow]]]"


@dataclass(frozen=True, slots=True)
class OpenProof:
    """The values that one proof works with; `conn` is idle outside of a guard.

    `current` gets the sums of the lake's tables that were read, `catalog` the digests of the catalog of the tables that the
    snapshot has; `to_repair` the keys of those that differ, unless it is None.
    """

    config: Config
    source: SourceConfig
    lake: SourceLake
    spark: SparkOnDemand
    session: SnapshotSession
    conn: Connection
    report: Report
    current: dict[TableName, FilledBuckets] = field(default_factory=dict)
    catalog: dict[TableName, str] = field(default_factory=dict)
    to_repair: dict[TableName, KeysToRepair] | None = None


@dataclass(frozen=True, slots=True)
class _BothSides:
    """A table that both sides have at the position: the buckets of each."""

    published: PublishedTable
    side: LakeSide
    source: Buckets
    lake: Buckets


def compare_all(proof: OpenProof, names: Sequence[TableName], cut: Cut | None, stop: Stop) -> ProofReport:
    """Return the result for every table, compared at the cut if that is the snapshot's."""
    name, point = proof.source.name, proof.session.consistent_point
    if stop.requested:
        blocked = TableProof("blocked", reason="it was asked to stop")
        return ProofReport(name, point, dict.fromkeys(names, blocked))
    threads = proof.source.compaction.threads
    published, refused = read_published(proof, names)
    reader = LakeReader.of(proof.lake, proof.spark, proof.source.compaction.engine)

    def open_table(table: TableName) -> TableProof | LakeSide:
        return _open(proof, reader, published[table], cut)

    opened = dict(few_at_a_time([*published], open_table, threads))
    sides = read_source(proof, [_asked(published[table], of) for table, of in opened.items()], refused, stop)
    proofs = dict[TableName, TableProof]()

    def read(table: TableName) -> TableProof | _BothSides:
        side = sides.get(table)
        if side is None or side.table is None or side.buckets is None:
            return _unread(proof, table, side, cut)
        return _read_lake(proof, side.table, side.buckets, opened[table])

    for number, (table, both) in enumerate(few_at_a_time(names, read, threads), 1):
        side = sides.get(table)
        proofs[table] = both if isinstance(both, TableProof) else _compare(proof, both)
        if side is not None and side.table is not None:
            beside = tuple(sorted(side.table.outside))
            proofs[table] = replace(proofs[table], left_out=side.table.left_out, outside=beside)
        proof.report(compared(table, proofs[table], point, f"{number:,} of {counted(len(names), 'table')}"))
    return ProofReport(name, point, proofs)


def read_published(
    proof: OpenProof, names: Sequence[TableName]
) -> tuple[dict[TableName, PublishedTable], dict[TableName, DefiniteError]]:
    """Return the tables as the snapshot's catalog has them, and those that can't be read."""
    conn = proof.session.connect("lakeproof proof")
    refused: dict[TableName, DefiniteError] = {}
    try:
        tables = dict(read_tables(conn, proof.source, only=set(names), refused=refused))
        reading = read_catalog(conn, proof.source, [table.version.oid for table in tables.values()])
        digests = {name: table_digest(reading, table.version.oid) for name, table in tables.items()}
        proof.catalog.update({name: digest for name, digest in digests.items() if digest is not None})
        return tables, refused
    finally:
        close_quietly(conn)


def _open(proof: OpenProof, reader: LakeReader, published: PublishedTable, cut: Cut | None) -> TableProof | LakeSide:
    """Open a table in the lake, from any thread; or return why there is nothing to compare."""
    cut_table = in_lake_at_point(proof, published.table, published, cut)
    if isinstance(cut_table, TableProof):
        return cut_table
    with reading(None, LogGapError, UnreadableRowsError) as attempt:
        return reader.open(published.table, cut_table, proof.source.buckets)
    return unreadable_table_proof(attempt.error)


def _asked(published: PublishedTable, opened: TableProof | LakeSide) -> Asked:
    if isinstance(opened, TableProof):
        return Asked(published, 1, None)
    return Asked(published, opened.number, opened.rows_in_log)


def _read_lake(
    proof: OpenProof, published: PublishedTable, source: Buckets, opened: TableProof | LakeSide
) -> TableProof | _BothSides:
    """Read a table's buckets in the lake, from any thread; or return why there is nothing to compare."""
    if isinstance(opened, TableProof):
        return replace(opened, source_rows=rows_in(source))
    lake = None
    while lake is None:
        # Spark reads it from the start if it turns out to be too large for this process.
        with (
            suppress(TooLargeError),
            reading(opened.session, *spark_errors(LogGapError, UnreadableRowsError)) as attempt,
        ):
            lake = opened.buckets()
        if attempt.error is not None:
            return replace(unreadable_table_proof(attempt.error), source_rows=rows_in(source), by_spark=opened.by_spark)
    proof.current[published.table] = FilledBuckets(lake, opened.number)
    return _BothSides(published, opened, source, lake)


def unreadable_table_proof(error: BaseException | None) -> TableProof:
    """Return the proof of a table whose rows nobody can read: a repair writes them anew."""
    reason = "" if error is None else reason_of(error)
    return TableProof("differs", reason=f"the lake's table can't be read: {reason}")


def _compare(proof: OpenProof, both: _BothSides) -> TableProof:
    """Compare the buckets of a table, and name the keys in those that differ."""
    wrong, number = differing_buckets(both.source, both.lake), both.side.number
    counts = (rows_in(both.source), rows_in(both.lake))
    if not wrong:
        return TableProof("equal", *counts, by_spark=both.side.by_spark)
    reason = f"{len(wrong)} of {counted(number, 'bucket')} differ"
    proven = TableProof("differs", *counts, len(wrong), reason=reason, by_spark=both.side.by_spark)
    published = both.published
    unsent = published.actions != frozenset(ACTIONS)
    narrowed = wrong if unsent else to_narrow(both.source, both.lake)
    if len(narrowed) < len(wrong):
        proven = replace(proven, reason=f"{proven.reason}; the keys named are those of {len(narrowed)} of them")
    names = published.version.key
    try:
        with proof.session.guard(proof.conn, proof.source, published):
            rows = source_rows(proof.conn, published, number, narrowed)
            lake_side = both.side.rows(narrowed)
            if unsent:
                judged = judge(
                    differences(names, rows, lake_side),
                    published.actions,
                    new_file=_new_file(proof, both.side.cut_table),
                )
                status: Status = "not applicable" if judged.excused else "differs"
                return replace(
                    proven, status=status, differing_keys=judged.keys, reason=f"{proven.reason}: {judged.message}"
                )
            in_source, in_lake_side = list(rows), list(lake_side)
            keys = differing_keys(names, [row for _, row in in_source], (row for _, row in in_lake_side))
            if proof.to_repair is not None:
                same = (in_source, in_lake_side) if len(narrowed) == len(wrong) else None
                to_read = _keys_to_repair(proof, both, wrong, same)
                proof.to_repair[published.table] = replace(to_read, columns=key_columns(published.version))
    except UNREAD as error:
        reason = f"{proven.reason}; the keys could not be named: {error.reason}"
        # A row that is not compared is neither excused nor damaged.
        return replace(proven, status="blocked" if unsent else "differs", reason=reason)
    return replace(proven, differing_keys=tuple(keys))


def _keys_to_repair(proof: OpenProof, both: _BothSides, wrong: Sequence[int], rows: _Rows | None) -> KeysToRepair:
    """Return the keys by which a repair reads the table, or why it doesn't; `rows` are those of the `wrong` buckets.

    If they were not all read, they are read here. Call it inside a guard.
    """
    why = why_not_by_keys(proof.conn, both.published)
    if why is not None:
        return KeysToRepair(why_whole=why)
    if rows is not None:
        return keys_to_repair(*rows)
    most = max(sum(side[b].rows for b in wrong if b in side) for side in (both.source, both.lake))
    if most > ROWS_MAX:
        return KeysToRepair(why_whole=f"the buckets that differ have {most:,} rows, and at most {ROWS_MAX:,} are read")
    source = source_rows(proof.conn, both.published, both.side.number, wrong)
    return keys_to_repair(source, both.side.rows(wrong))


def _new_file(proof: OpenProof, cut_table: CutTable) -> bool:
    """True if the table has another file than at its newest snapshot, as a TRUNCATE leaves it; call it inside a guard."""
    lake = proof.lake
    key = lake.paths.snapshot(cut_table.snapshot_incarnation, cut_table.snapshot_lsn)
    snapshot = find_snapshot(lake, key)
    then = None if snapshot is None else snapshot.tables.get(cut_table.version.table)
    now = read_catalog(proof.conn, proof.source, [cut_table.version.oid]).files(cut_table.version.oid)
    # A table that was created in the stream has no snapshot; its file had the number of its OID.
    files = {cut_table.version.oid: int(cut_table.version.oid)} if then is None else then.files
    return any(now.get(oid) != file for oid, file in files.items())


def _unread(proof: OpenProof, table: TableName, side: SourceSide | None, cut: Cut | None) -> TableProof:
    """Return the proof of a table that could not be read in the source."""
    held = {} if side is not None or cut is None else {t: h for t, h in cut.held.items() if t == table}
    if left_behind(proof.source, held):
        return TableProof("not applicable", reason=f"it is no longer configured, and {held[table].reason}")
    if paused_among(held):
        return TableProof("not applicable", reason=f"{held[table].reason}, at {held[table].at_lsn}")
    if cut is not None and table in cut.held:
        return TableProof("held", reason=str(describe_held(cut.held[table], proof.source.name, table)))
    if side is not None:
        return TableProof("blocked", reason=side.blocked)
    reason = "it is not published any more (dropped, renamed or taken out), so the lake does not follow it"
    return TableProof("held", reason=f"{reason}; what the lake has of it is kept ({_CHANGES})")


def in_lake_at_point(
    proof: OpenProof, table: TableName, published: PublishedTable, cut: Cut | None
) -> CutTable | TableProof:
    """Return the table at the position, or why the lake does not have it there."""
    begun = newest_incarnation(proof.lake)
    if cut is not None and begun is not None and cut.incarnation != begun:  # its positions are of another order
        remedy = f"run `lakeproof recover {proof.source.name}`, then prove again"
        return TableProof("blocked", reason=f"incarnation {begun} has begun, its recover was not finished; {remedy}")
    if cut is not None and table in cut.held:
        return TableProof("held", reason=str(describe_held(cut.held[table], proof.source.name, table)))
    if cut is None or table not in cut.tables:
        refused = refused_tables(schema_findings(published, proof.source)).get(table)
        if refused is not None:
            reason = f"it is not in the lake, and can't be copied: {refused.reason}; {refused.remedy}"
            return TableProof("missing", reason=reason)
        return TableProof("missing", reason=f"it is not in the lake yet; {snapshot_command(proof.source.name, table)}")
    cut_table = cut.tables[table]
    point = proof.session.consistent_point
    if cut.position != point or cut_table.at_lsn != point:
        return TableProof(
            "blocked",
            reason=f"the lake has it at {cut_table.at_lsn}, not at {point}{_why(proof, cut)}; try again",
        )
    if cut_table.version.id != published.version.id:
        change = describe_change(cut_table.version, published.version)
        if only_configured(cut_table.version, published.version, proof.source.table_config(table).numeric):
            reason = f"{change}, by the configuration, and no changed row has brought that"
            return TableProof("held", reason=f"{reason}; {snapshot_command(proof.source.name, table)}")
        return TableProof(
            "blocked",
            reason=f"{change}; a drain that goes on from here, or the next change of a row, brings that; try again",
        )
    return cut_table


def _why(proof: OpenProof, cut: Cut) -> str:
    """Return the schema change for which a compaction stopped before the position."""
    chain = Chain.open(proof.lake, cut.incarnation)
    tables = sorted(waiting(chain, cut))
    if not tables:
        return ""
    named = listed(tables, _TABLES_SHOWN)
    return f": compaction waits until the catalog was read again, since columns were added to {named}"
