"""Compares what changed since each table's last proof: the rows under the keys that were touched, on both sides.

Finding the keys in the lake does not belong here (`lakeproof.proof.changed_keys`), nor comparing whole tables
(`tables`), which is done to those of which the touched keys are not all:

    proven, and nothing touched    it is still equal: nothing is read of it in the source
    proven, and some keys touched  their rows are looked up on both sides, a bounded number at a time and in a second
    anything else                  compared whole, the one proven longest ago first, as many as fit (`WHOLE_BYTES_MAX`)

A table is proven as long as its last comparison found it equal, and schema, catalog and log are still those of then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakeproof.errors import LakeError, UnreadableRowsError
from lakeproof.events import Stop, counted
from lakeproof.lake.delta.files.needed import files_at
from lakeproof.lake.delta.log.commits import LogGapError
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.spark.failures import reading
from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import ACTIONS, PublishedTable
from lakeproof.postgres.copying.keys import why_not_by_keys
from lakeproof.proof.changed_keys import ChangedSide, NotByKeysError
from lakeproof.proof.compare import ProofRow, differing_keys, rows_by_key
from lakeproof.proof.lake.side import LakeReader
from lakeproof.proof.record import Proved, read_record
from lakeproof.proof.result import ProofReport, TableProof, compared
from lakeproof.proof.source.read import UNREAD, why_unread
from lakeproof.proof.source.side import source_rows_of
from lakeproof.proof.tables import OpenProof, compare_all, in_lake_at_point, read_published, unreadable_table_proof
from lakeproof.snapshot.copy.rate_limit import RateLimiter

# So many keys are in one statement, and so many are looked up in a second.
KEYS_AT_ONCE = 1_000
KEYS_PER_S = 50_000
# Tables whose files have so many bytes together are compared whole by one proof of changes.
WHOLE_BYTES_MAX = 64 << 20
# A table of which so large a share was touched is compared whole: that is cheaper.
_SHARE = 4


@dataclass(frozen=True, slots=True)
class _Whole:
    """A table that is to be compared whole: why, and the bytes of its files."""

    why: str
    bytes: int


def compare_changed(proof: OpenProof, names: Sequence[TableName], cut: Cut | None, stop: Stop) -> ProofReport:
    """Return the result for every table at the cut, if that is the snapshot's."""
    published, _ = read_published(proof, names)
    proved, point = read_record(proof.lake).tables, proof.session.consistent_point
    proofs, whole, others = dict[TableName, TableProof](), dict[TableName, _Whole](), list[TableName]()
    pace = RateLimiter(KEYS_PER_S)
    for table in names:
        if table not in published or stop.requested:
            others.append(table)
            continue
        with reading(None, LogGapError, UnreadableRowsError) as attempt:
            result = _compare(proof, published[table], proved.get(table), cut, pace, stop)
        if attempt.error is not None:
            result = replace(unreadable_table_proof(attempt.error), kind="changed")
        if isinstance(result, _Whole):
            whole[table] = result
            continue
        proofs[table] = replace(
            result, left_out=published[table].left_out, outside=tuple(sorted(published[table].outside))
        )
        proof.report(compared(table, proofs[table], point, f"{len(proofs):,} of {counted(len(names), 'table')}"))
    chosen = _in_turn(proof, whole, proved)
    read_whole = compare_all(proof, [*others, *chosen], cut, stop).tables if others or chosen else {}
    proofs |= {t: p if p.lake_rows is not None else replace(p, kind="changed") for t, p in read_whole.items()}
    for table, left in whole.items():
        if table not in chosen:
            reason = f"{left.why}; it has {left.bytes >> 20:,} MiB, which a whole proof compares: run `lakeproof prove`"
            proofs[table] = TableProof("blocked", reason=reason, kind="changed")
            proof.report(compared(table, proofs[table], point, f"{len(proofs):,} of {counted(len(names), 'table')}"))
    return ProofReport(proof.source.name, point, {table: proofs[table] for table in names})


def _in_turn(proof: OpenProof, whole: dict[TableName, _Whole], proved: Mapping[TableName, Proved]) -> list[TableName]:
    """Return the tables that are compared whole now: those proven longest ago, as many as there is room for."""

    def last(table: TableName) -> tuple[str, TableName]:
        verified = proved[table].verified if table in proved else None
        return "" if verified is None else verified.time, table

    # Whoever wants Spark for every table wants no JVM every few minutes.
    if LakeReader.of(proof.lake, proof.spark, proof.source.compaction.engine).by_spark is not None:
        return []
    chosen, room = list[TableName](), WHOLE_BYTES_MAX
    for table in sorted(whole, key=last):
        if whole[table].bytes <= room:
            room -= whole[table].bytes
            chosen.append(table)
    return chosen


def _compare(  # noqa: PLR0917  one table, and what there is about it
    proof: OpenProof, published: PublishedTable, last: Proved | None, cut: Cut | None, pace: RateLimiter, stop: Stop
) -> TableProof | _Whole:
    """Compare a table by its touched keys, or return why it is compared whole. Raises LogGapError, UnreadableRowsError."""
    cut_table = in_lake_at_point(proof, published.table, published, cut)
    if isinstance(cut_table, TableProof):
        return replace(cut_table, kind="changed")
    try:
        side = _touched(proof, published, last, cut, cut_table)
        return _by_keys(proof, published, side, pace, stop)
    except NotByKeysError as why:
        path, size = proof.lake.url(proof.lake.paths.current(published.table)), 0
        # A log that can't be read is found by who reads it.
        with suppress(LakeError):
            size = sum(file.bytes for file in files_at(path, cut_table.current_version))
        return _Whole(str(why), size)


def _touched(
    proof: OpenProof, published: PublishedTable, last: Proved | None, cut: Cut | None, cut_table: CutTable
) -> ChangedSide:
    table = published.table
    if published.actions != frozenset(ACTIONS):
        raise NotByKeysError("its publication does not send all changes")
    basis = None if last is None else last.basis
    if basis is None or last is None or last.verified is None:
        raise NotByKeysError("it was never compared whole, or differed when it was")
    if cut is not None and last.verified.incarnation != cut.incarnation:
        raise NotByKeysError("another incarnation has begun since")
    if basis.schema_id != cut_table.version.id or proof.catalog.get(table) != basis.catalog:
        raise NotByKeysError("its columns, its files or its publication are not those that were proven")
    return ChangedSide.since(basis, proof.lake, table, cut_table)


def _by_keys(
    proof: OpenProof, published: PublishedTable, side: ChangedSide, pace: RateLimiter, stop: Stop
) -> TableProof:
    """Compare the rows under the touched keys."""
    count, rows = len(side.texts), side.rows_in_log
    equal = TableProof("equal", rows, rows, kind="changed", keys=count)
    if not count:
        return equal
    if rows is not None and count * _SHARE > rows + KEYS_AT_ONCE:
        raise NotByKeysError(f"{count:,} keys of {counted(rows, 'row')} changed")
    why = why_not_by_keys(proof.conn, published)
    if why is not None:
        raise NotByKeysError(why)
    lake, source = side.rows(), list[ProofRow]()
    try:
        with proof.session.guard(proof.conn, proof.source, published):
            for first in range(0, count, KEYS_AT_ONCE):
                some = side.texts[first : first + KEYS_AT_ONCE]
                pace.acquire(len(some), lambda: stop.requested)
                if stop.requested:
                    return TableProof("blocked", reason="it was asked to stop", kind="changed")
                # What PostgreSQL calls equal may be another key, which may be among those of another statement.
                keys = {*some}
                source += [row for row in source_rows_of(proof.conn, published, some) if row.key in keys]
    except UNREAD as error:
        return TableProof("blocked", reason=why_unread(error), kind="changed")
    if dict(Counter(source)) == dict(Counter(lake)):
        return equal
    sides = rows_by_key(source), rows_by_key(lake)
    wrong = sum(sides[0].get(key) != sides[1].get(key) for key in sides[0].keys() | sides[1].keys())
    reason = f"{wrong:,} of {counted(count, 'key')} that changed differ"
    named = tuple(differing_keys(published.version.key, source, lake))
    return replace(equal, status="differs", differing_keys=named, reason=reason)
