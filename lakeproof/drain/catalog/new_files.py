"""Finds the cause of tables' new files where the stream or the catalog proves one: a TRUNCATE, a partition without a row.

`catalog.watch` decides when to ask. What is not proven counts as what is worst for the lake.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.catalog.differences import Difference, TableDifferences, new_files
from lakeproof.catalog.fingerprint import TableFacts
from lakeproof.errors import LakeError
from lakeproof.hidden_columns import OP, SEQ, XID
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import SegmentFile
from lakeproof.landing.segments.reader import open_file, verify_file
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.postgres.catalog.empty import attached_empty, writer_of
from lakeproof.postgres.connections.connect import Connection


def without_empty_partitions(
    conn: Connection, change: TableDifferences, before: TableFacts, after: TableFacts
) -> TableDifferences:
    """Return the change as that of partitions created, if each one attached had no row that the lake would lack."""
    had = {leaf.oid: leaf for leaf in before.leaves}
    new = [leaf for leaf in after.leaves if leaf.oid not in had]
    moved = any(leaf.oid in had and leaf.links != had[leaf.oid].links for leaf in after.leaves)
    # Of a tree that was attached, each link would have to be proven.
    if moved or any(leaf.attached not in {(), (leaf.oid,)} for leaf in new):
        return change
    attached = {leaf.oid: leaf.links[-1] for leaf in new if leaf.attached}
    empty = attached_empty(conn, attached.keys())
    if any(empty.get(oid) != link for oid, link in attached.items()):
        return change
    kept = [d for d in change.differences if d not in {Difference.PARTITION_ATTACHED, Difference.PARTITION_CREATED}]
    return replace(change, differences=(*kept, Difference.PARTITION_CREATED))


def truncated_by_root(chain: Chain, since: Lsn, before: TableFacts, after: TableFacts) -> bool:
    """True if for the transaction of each new file of a partition the stream sent a TRUNCATE of the root."""
    xids = {leaf.epoch for leaf in new_files(before, after)}
    return bool(xids) and xids <= _truncating(chain, since, after.oid, emptied=False)


def may_be_emptied_by(conn: Connection, before: TableFacts, after: TableFacts) -> str | None:
    """Return the transaction that may have given a table its file by a TRUNCATE; None if it has altered columns too."""
    altered = {column.epoch for column in after.columns} - {column.epoch for column in before.columns}
    xid = writer_of(conn, after.oid, after.file)
    return None if xid in altered else xid


def is_emptied_by(xid: str, chain: Chain, since: Lsn, oid: Oid) -> bool:
    """True if the stream has the transaction, and it left the table without a row.

    Whatever rewrote the table there, or before, has changed no row that is left.
    """
    return xid in _truncating(chain, since, oid, emptied=True)


def _truncating(chain: Chain, since: Lsn, oid: Oid, *, emptied: bool) -> set[str]:
    """Return the transactions that landed after `since` and truncated a table; with `emptied`, after their last row of it.

    A damaged file proves nothing: then a new file is not attributed to a TRUNCATE.
    """
    xids: set[str] = set()
    for manifest in chain.between(since, chain.end):
        files = [file for file in manifest.files if file.oid == oid]
        if any(file.counts.truncates for file in files):
            xids |= _truncating_in(chain, [f for f in files if emptied or f.counts.truncates], emptied=emptied)
    return xids


def _truncating_in(chain: Chain, files: list[SegmentFile], *, emptied: bool) -> set[str]:
    """Return the same for one segment, which has whole transactions, of any size: one batch of rows is read at a time."""
    if not all(_is_sound(chain, file) for file in files):
        return set()
    # The last `_lp_seq` of each transaction's truncates, and of its rows.
    truncated: dict[int, int] = {}
    others: dict[int, int] = {}
    for file in files:
        with open_file(chain, file) as opened:
            for rows in opened.iter_batches(columns=[OP, SEQ, XID]):
                truncates = pc.equal(rows.column(OP).cast("string"), "truncate")
                _note_newest(truncated, rows.filter(truncates))
                _note_newest(others, rows.filter(pc.invert(truncates)))
    return {str(xid) for xid, seq in truncated.items() if not emptied or others.get(xid, -1) < seq}


def _note_newest(newest: dict[int, int], rows: pa.RecordBatch) -> None:
    last = pa.Table.from_batches([rows]).group_by(XID).aggregate([(SEQ, "max")])
    for xid, seq in zip(last[XID].to_pylist(), last[f"{SEQ}_max"].to_pylist(), strict=True):
        newest[xid] = max(seq, newest.get(xid, seq))


def _is_sound(chain: Chain, file: SegmentFile) -> bool:
    try:
        verify_file(chain, file)
    except LakeError:
        return False
    return True
