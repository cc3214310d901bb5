"""The repair of what a proof found: the rows of the differing keys are read again, or the whole table where that won't do.

Comparing does not belong here (`tables`), nor the cycle that enters what was read (`lakeproof.lake.cycle`).

    a proof        the keys that differ, of each table ─ or why its rows are not read by keys
    under a lease  a slot with its snapshot at C ─ the rows under these keys ─ the cycle that ends at C enters them
    a proof        at C, with the same snapshot

The lease stays ours from the slot to the cut, so the rows are those of the cut's own position: no change is applied to them
that they have already, and none after them is lost. A table that still differs, or that the cycle had to hold, is copied
whole.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import psycopg
import pyarrow as pa

from lakeproof.errors import SourceError, TableError, TransientError
from lakeproof.events import Event, Stop, counted
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import TEXT
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import WayOut
from lakeproof.landing.chain import newest_incarnation
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.connections.connect import Connection, close_quietly, translate
from lakeproof.postgres.copying.blocks import copy_blocks, typed_batch
from lakeproof.postgres.copying.keys import Key, keys_query, why_not_by_keys
from lakeproof.proof.keys_to_repair import KeysToRepair
from lakeproof.proof.lake.in_arrow import decoded_keys
from lakeproof.proof.result import ProofReport, TableRepair
from lakeproof.proof.tables import OpenProof
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.copy.keyed_copy import KeyedCopy, KeyedTable, PlacedCopy, place_copy
from lakeproof.snapshot.copy.keyed_rows import keys_batch, write_keyed_rows
from lakeproof.snapshot.run import SnapshotReport
from lakeproof.storage.times import now_text
from lakeproof.values.cast import CastError
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.exact_texts import HiddenTexts, exact_texts

# So many keys are in one statement.
KEYS_AT_ONCE = 1_000
_UNREAD = KeysToRepair(why_whole="its rows in the lake or in the source could not be read to find the keys")


class NotByKeys(Exception):  # noqa: N818  not an error: the table is copied whole
    """A table whose rows can't be read by keys now."""


@dataclass(slots=True)
class Repair:
    """A repair as it goes on: the keys to read, and what became of each table."""

    keys: dict[TableName, KeysToRepair] = field(default_factory=dict)
    whole: dict[TableName, str] = field(default_factory=dict)
    done: dict[TableName, TableRepair] = field(default_factory=dict)

    @classmethod
    def of(cls, wrong: Sequence[TableName], by_table: Mapping[TableName, KeysToRepair]) -> Repair:
        """Return the repair of the tables that differ, by what a proof found of them."""
        repair = cls()
        for table in wrong:
            keys = by_table.get(table, _UNREAD)
            if keys.why_whole is None:
                repair.keys[table] = keys
            else:
                repair.whole[table] = keys.why_whole
        return repair

    @property
    def event(self) -> Event:
        """Return the event about the keys that are read again."""
        keys = {table.key: len(chosen.keys) for table, chosen in self.keys.items()}
        message = f"reading {counted(sum(keys.values()), 'key')} of {counted(len(keys), 'differing table')} again"
        return Event("prove.repair", message, {"keys": keys})

    def copied(self, report: SnapshotReport) -> None:
        """Record the tables that were copied whole, and why others were not."""
        for table, copy in report.tables.items():
            before = self.done.get(table)
            keys = None if before is None else before.keys
            self.done[table] = TableRepair("whole", keys, copy.rows, self.whole.get(table))
        for table, why in report.failed.items():
            self.refused(table, why)

    def refused(self, table: TableName, why: str) -> None:
        """Record why a table can't be copied."""
        self.done[table] = TableRepair("none", reason=why)

    def left_over(self, proof: ProofReport, cut: Cut | None) -> dict[TableName, str]:
        """Return the tables whose keys were to be read, and that are to be copied whole all the same, with the reasons."""
        held = {} if cut is None else cut.held
        left = dict[TableName, str]()
        for table in self.keys:
            status = proof.tables[table].status if table in proof.tables else "equal"
            why = self.whole.get(table)
            if status == "differs":
                left[table] = why or "it still differed with the rows of its keys"
            elif status == "held" and table in held and held[table].way_out is WayOut.SNAPSHOT:
                left[table] = why or f"the cycle held it: {held[table].reason}"
        return left

    def described_in(self, proof: ProofReport) -> ProofReport:
        """Return the report with what was done to each table."""
        tables = {t: replace(p, repair=self.done[t]) if t in self.done else p for t, p in proof.tables.items()}
        return replace(proof, tables=tables)


def copy_keys(proof: OpenProof, repair: Repair, stop: Stop) -> PlacedCopy | None:
    """Copy the rows under the keys of a repair at the snapshot's position; None if there are none to be entered.

    A table whose rows can't be read by keys now is left out, and `repair.whole` says why. Raises TransientError if the
    connection is lost.
    """
    lake, point = proof.lake, proof.session.consistent_point
    incarnation = newest_incarnation(lake)
    if incarnation is None or not repair.keys:
        return None
    folder = lake.paths.keyed_copy(incarnation, point, secrets.token_hex(4))
    conn = proof.session.connect("lakeproof repair")
    try:
        published = read_tables(conn, proof.source, only=set(repair.keys), refused={})
    finally:
        close_quietly(conn)
    copied = dict[TableName, KeyedTable]()
    for number, (table, keys) in enumerate(repair.keys.items()):
        if stop.requested:
            return None
        if table not in published:
            repair.whole[table] = "it is not published any more"
            continue
        try:
            copied[table] = _copy_table(proof, published[table], keys, f"{folder}/{number:06d}", stop)
        except (NotByKeys, SourceError, TableError) as error:
            repair.whole[table] = f"its rows could not be read by keys: {error}"
            continue
        rows, number_of_keys = copied[table].rows.rows, len(keys.keys)
        repair.done[table] = TableRepair("keys", number_of_keys, rows)
        message = f"{table}: {counted(number_of_keys, 'key')}, {counted(rows, 'row')} read at {point}"
        proof.report(Event("prove.keys", message, {"table": table.key, "keys": number_of_keys, "rows": rows}))
    failpoint("repair.after_rows")
    if not copied:
        return None
    placed = place_copy(lake, folder, KeyedCopy(incarnation, point, now_text(), copied))
    failpoint("repair.after_copy")
    return placed


def _copy_table(proof: OpenProof, published: PublishedTable, of: KeysToRepair, place: str, stop: Stop) -> KeyedTable:
    """Copy the rows under a table's keys; raises NotByKeys, SourceError or TableError if this can't be done now."""
    store, version, point = proof.lake.store, published.version, proof.session.consistent_point
    folder, _, name = place.rpartition("/")
    thing = f"table {published.table}"
    keys = of.keys
    if key_columns(version) != [*of.columns]:
        raise NotByKeys("it has another key than when it was compared")
    # A connection of its own: one that is left in the middle of a COPY is closed.
    conn = proof.session.open("lakeproof repair")
    try:
        with proof.session.guard(conn, proof.source, published):
            why = why_not_by_keys(conn, published)
            if why is not None:
                raise NotByKeys(why)
            rows = write_keyed_rows(
                store, folder, f"{name}-rows", version, point, _batches(conn, published, keys, stop)
            )
        batch = keys_batch(version, keys)
        return KeyedTable(rows, write_keyed_rows(store, folder, f"{name}-keys", version, point, [batch]))
    except CastError as error:
        raise NotByKeys(str(error)) from None
    except pa.ArrowInvalid:
        raise NotByKeys("a text is not UTF-8") from None
    except psycopg.Error as error:
        raise translate(error, thing) from None
    except InterruptedError:
        raise TransientError(thing, "it was stopped", "run it again") from None
    finally:
        close_quietly(conn)


def _batches(conn: Connection, published: PublishedTable, keys: Sequence[Key], stop: Stop) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(keys), KEYS_AT_ONCE):
        some = keys[first : first + KEYS_AT_ONCE]
        query = keys_query(published, some)
        with closing(copy_blocks(conn, query, give_up=lambda: stop.requested)) as blocks:
            for block in blocks:
                rows = _rows_of(published.version, typed_batch(block, published.version.columns), {*some})
                if rows.num_rows:
                    yield rows


def _rows_of(version: SchemaVersion, rows: pa.RecordBatch, keys: Collection[Key]) -> pa.RecordBatch:
    """Return the rows that have one of exactly these keys.

    PostgreSQL also finds rows whose keys it calls equal to them. If such a key is among those of another statement, the row
    would be there twice.
    """
    columns, hidden = key_columns(version), HiddenTexts.of(rows.column(TEXT))
    values = {c.name: rows.column(f"c{number}") for number, c in enumerate(version.columns)}
    texts = [exact_texts(c, values[c.name], hidden).cast(pa.binary()) for c in columns]
    return rows.filter(pa.array([key in keys for key in decoded_keys(texts)], pa.bool_()))
