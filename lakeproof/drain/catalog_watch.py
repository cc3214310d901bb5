"""Watching the source's catalog while a drain runs: much that an ALTER does is never sent, so it is looked for.

Reading belongs to `lakeproof.postgres.catalog_fingerprint`, what a difference means to `lakeproof.catalog.differences`,
the record to `lakeproof.landing.catalog_record`.

    when     at every connect, before anything is landed; every `drain.catalog_interval_s`; when a Relation message names
             another shape; once more at a session's end
    where    the flusher's thread, on a connection of its own; the thread that answers the server never waits for it
    what     nothing differs: the next manifests say how far the catalog has been seen (`catalog_lsn`)
             something differs: a link of its own, with the tables, what differs, and since when it may be so

A reading that fails is tried again: at a connect it ends the session (which is tried again as a whole), later on the
position up to which the catalog is known just stays where it is.

Known weakness: what is altered and altered back between two readings leaves no trace, unless the catalog's line is
another one by then (a table taken out of its publication and put back is; a table moved out of a published schema and
back is not).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc
import pyarrow.parquet as pq
from psycopg.sql import SQL

from lakeproof.catalog.differences import AddedColumn, Born, Difference, TableChange, Verdict, compare, verdict
from lakeproof.catalog.fingerprint import Fingerprint, LeafFacts, TableFacts
from lakeproof.config.model import SourceConfig
from lakeproof.drain.born_tables import born_tables, rules_in_force
from lakeproof.drain.catalog_readings import Readings
from lakeproof.drain.publications import PublicationsChangedError
from lakeproof.errors import LakeError, TransientError
from lakeproof.failpoints import failpoint
from lakeproof.landing.catalog_history import append_catalog, newest_link, put_fingerprint, read_fingerprint
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import DataFile, Manifest
from lakeproof.landing.reader import file_url, verify_file
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.postgres.catalog_fingerprint import Reading, Settling, existing, read
from lakeproof.postgres.catalog_published import publications_of, read_types
from lakeproof.postgres.catalog_relations import version_in
from lakeproof.postgres.connection import Connection, close_quietly, connect, source_errors
from lakeproof.postgres.connection_timeouts import Patience, within
from lakeproof.schema import SchemaVersion

APPLICATION_NAME = "lakeproof drain watch"
# A reading takes a second for 10,000 tables; one that takes this long waits for something.
_STATEMENT_TIMEOUT_MS = 30_000
# At least so long after a look where one is due since there is a new table.
_NEW_TABLES_S = 1.0
# After a reading that failed.
_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A root whose partitions have other files: did a TRUNCATE of it do that? The stream tells once it is past `noticed`."""

    leaves_text: str
    noticed: Lsn


class CatalogWatch:
    """What one session of a drain knows of the catalog. For the flusher's thread; `close` when that has ended.

    `publications` are those that the stream was opened with, `there` all that the source then had, `chain` the flusher's;
    the catalog is waited for with `patience`.
    """

    def __init__(
        self,
        source: SourceConfig,
        chain: Chain,
        publications: Sequence[str],
        writer: str,
        patience: Patience,
        *,
        there: Sequence[str] | None = None,
    ) -> None:
        self._source = source
        self._patience = patience
        self._chain = chain
        self._publications = list(publications)
        self._there = set(publications if there is None else there)
        self._writer = writer
        self._conn: Connection | None = None
        self._known: Fingerprint | None = None
        self._rules: Mapping[str, int] = {}
        self._settling = Settling(chain.newest.catalog_lsn or Lsn.ZERO)
        self._waiting: dict[Oid, _Waiting] = {}
        self._shapes: dict[Oid, str] = {}
        self._due_at = 0.0
        self._retry_at = 0.0
        self._looked_at = 0.0
        self._looked = False
        self._last = False
        self.catalog_lsn = chain.newest.catalog_lsn
        self.readings = Readings(chain)
        self.noticed: deque[TableChange] = deque()

    @property
    def wait_s(self) -> float:
        """How long until a look is due."""
        return max(0.0, max(self._due_at, self._retry_at) - time.monotonic())

    @property
    def due(self) -> bool:
        """Whether it is time."""
        if time.monotonic() < self._retry_at:
            return False
        return self.wait_s == 0 or any(w.noticed <= self._chain.end for w in self._waiting.values())

    def saw(self, version: SchemaVersion) -> None:
        """A Relation message stood for this version: where it is another one than before, or of a new table, look soon."""
        known = self._shapes.get(version.oid)
        self._shapes[version.oid] = version.id
        if known is not None and known != version.id:
            self._due_at = 0.0
        elif known is None and self._known is not None and version.oid not in self._known.tables:
            # Where it was born, its shape should be read before it is altered. Some sources make tables all the time.
            self._due_at = min(self._due_at, self._looked_at + _NEW_TABLES_S)

    def look(self, *, last: bool = False) -> Manifest | None:
        """Read the catalog and compare; the link that was added, where something differs. No segment may be open.

        At the `last` look of a session what an earlier one could not tell apart is decided, as the worse of both.
        Raises FencedError where another writer has the number, PublicationsChangedError where the source has other
        publications than at the beginning; what the first reading of a session fails with.
        """
        self._looked_at = time.monotonic()
        self._due_at = self._looked_at + self._source.drain.catalog_interval_s
        try:
            if self._known is None:
                self._recall()
            reading, there = self._read()
        except PublicationsChangedError:
            raise
        except TransientError:
            self.close()
            if not self._looked:
                raise
            # Whatever is due: between two attempts there is time for the stream.
            self._retry_at = time.monotonic() + _RETRY_S
            return None
        self._looked, self._last = True, last
        return self._compare(reading, there)

    def close(self) -> None:
        """Close the connection."""
        close_quietly(self._conn)
        self._conn = None

    def _recall(self) -> None:
        """Take the newest reading of the chain, where it has one, as the one before."""
        link = newest_link(self._chain)
        if link is not None and link.catalog is not None:
            self._known, self._rules = read_fingerprint(self._chain, link), link.catalog.rules

    def _read(self) -> tuple[Reading, frozenset[Oid]]:
        if self._conn is None:
            with within(self._patience):
                self._conn = connect(self._source.dsn, APPLICATION_NAME)
            with source_errors("the source's catalog"):
                # Compiling the query takes longer than running it.
                self._conn.execute(SQL("SET jit = off"))
                self._conn.execute(SQL("SET statement_timeout = {}").format(_STATEMENT_TIMEOUT_MS))
        if set(publications_of(self._conn, self._source)) != self._there:
            raise PublicationsChangedError(self._source)
        reading = read(self._conn, self._publications, self._settling, self._born)
        known = self._known.tables.keys() if self._known is not None else set()
        return reading, existing(self._conn, known - reading.fingerprint.tables.keys())

    def _born(self, now: Fingerprint, rules: Mapping[str, int]) -> Mapping[Oid, Born]:
        if self._known is None or self._conn is None:
            return {}
        return born_tables(self._conn, self._source, self._known, self._rules, now, rules)

    def _compare(self, reading: Reading, there: frozenset[Oid]) -> Manifest | None:
        if self._known is None:
            return self._record(reading, None, reading.fingerprint, [])
        changes = [
            _told_as_born(self._unread(change, reading.fingerprint), reading)
            for change in compare(self._known, reading.fingerprint, there)
        ]
        changes = [self._shaped(change, reading.fingerprint) for change in changes]
        now, later = self._judge_files(changes, reading)
        fingerprint = reading.fingerprint
        if later:
            tables = dict(fingerprint.tables) | {oid: self._known.tables[oid] for oid in later}
            fingerprint = Fingerprint(tables, fingerprint.types, fingerprint.publications)
        since = self.catalog_lsn or self._chain.head.end_lsn
        if now or fingerprint != self._known or reading.rules.keys() != self._rules.keys():
            return self._record(reading, since, fingerprint, now, settled=not later)
        self._known = fingerprint
        if not later:
            self.catalog_lsn = self.readings.settled = reading.settled
        return None

    def _unread(self, change: TableChange, now: Fingerprint) -> TableChange:
        """The change of a table that only publications have that were not read before, so marked."""
        table = now.tables.get(change.oid)
        read_before = self._known.publication_names if self._known is not None else set()
        if table is None or any(now.publications[e.publication].name in read_before for e in table.entries):
            return change
        return replace(change, differences=(*change.differences, Difference.UNREAD))

    def _shaped(self, change: TableChange, now: Fingerprint) -> TableChange:
        """The change with the table's new shape, where that is all that differs."""
        if change.verdict is not Verdict.APPLY or self._conn is None:
            return change
        types = {column.type_oid for column in now.sent(now.tables[change.oid])} - now.types.keys()
        with source_errors("the source's catalog"):
            builtin = read_types(self._conn, types)
        return replace(change, version=version_in(self._source, now, change.oid, builtin))

    def _record(
        self,
        reading: Reading,
        since: Lsn | None,
        fingerprint: Fingerprint,
        changes: list[TableChange],
        *,
        settled: bool = True,
    ) -> Manifest:
        chain = self._chain
        failpoint("drain.before_fingerprint")
        put = put_fingerprint(
            chain.store, chain.paths, chain.incarnation, fingerprint, number=chain.next_number, writer=self._writer
        )
        failpoint("drain.after_fingerprint")
        looked = reading.settled if settled or since is None else since
        rules = rules_in_force(self._known, self._rules, reading)
        record = CatalogRecord(since, reading.noticed, *put, tuple(changes), rules)
        link = append_catalog(chain, self._writer, record, looked)
        self._known, self._rules, self.catalog_lsn = fingerprint, rules, looked
        self.readings.add(link, fingerprint, looked)
        self.noticed.extend(c for c in changes if c.verdict is not Verdict.IGNORE)
        return link

    def _judge_files(self, changes: list[TableChange], reading: Reading) -> tuple[list[TableChange], set[Oid]]:
        """The changes, those of a truncated root told from those of its partitions; and whose cause can't be told yet."""
        now: list[TableChange] = []
        later: set[Oid] = set()
        for change in changes:
            if Difference.PARTITION_FILE not in change.differences:
                now.append(change)
                continue
            others = tuple(d for d in change.differences if d is not Difference.PARTITION_FILE)
            if self._truncated_by_root(change.oid, reading.fingerprint):
                now.append(replace(change, differences=(*others, Difference.ROOT_TRUNCATED)))
            elif verdict(others) is not Verdict.IGNORE or self._passed(change.oid, reading):
                now.append(change)
            else:
                later.add(change.oid)
        self._waiting = {oid: w for oid, w in self._waiting.items() if oid in later}
        return now, later

    def _passed(self, oid: Oid, reading: Reading) -> bool:
        """Whether the stream is past the reading that first had these files, so that a TRUNCATE would have come."""
        text = reading.fingerprint.tables[oid].leaves_text
        waiting = self._waiting.get(oid)
        if waiting is None or waiting.leaves_text != text:
            self._waiting[oid] = _Waiting(text, reading.noticed)
            return reading.noticed <= self._chain.end
        return self._last or waiting.noticed <= self._chain.end

    def _truncated_by_root(self, oid: Oid, now: Fingerprint) -> bool:
        """Whether each new file came with a transaction that the stream sent a TRUNCATE of the root of."""
        before = self._known.tables[oid] if self._known is not None else None
        xids = _xids_of_new_files(before, now.tables[oid])
        return bool(xids) and xids <= self._truncating(oid)

    def _is_sound(self, file: DataFile) -> bool:
        try:
            verify_file(self._chain, file)
        except LakeError:
            return False
        return True

    def _truncating(self, oid: Oid) -> set[str]:
        """The transactions since the last reading that truncated a table, from what they landed.

        A file that is not what was written tells nothing: then a partition's new file is not put down to its root.
        """
        found: set[str] = set()
        for manifest in self._chain.between(self.catalog_lsn or self._chain.kept_from, self._chain.end):
            for file in manifest.files:
                if file.oid == oid and file.truncates and self._is_sound(file):
                    rows = pq.read_table(file_url(self._chain, file), columns=["_lp_op", "_lp_xid"])
                    rows = rows.filter(pc.equal(rows["_lp_op"].cast("string"), "truncate"))
                    found |= {str(xid) for xid in rows["_lp_xid"].to_pylist()}
        return found


def _told_as_born(change: TableChange, reading: Reading) -> TableChange:
    """A table that came into the publication, so marked where it was born in it."""
    born = reading.births.get(change.oid)
    if born is None or change.differences != (Difference.ENTERED,):
        return change
    table = reading.fingerprint.tables[change.oid]
    # Of a column that it was made with nobody will ask.
    added = tuple(AddedColumn(c.name, c.attnum, c.missing) for c in reading.fingerprint.sent(table))
    return replace(change, differences=(Difference.BORN,), added=added, born=born)


def _xids_of_new_files(before: TableFacts | None, after: TableFacts) -> set[str]:
    had: dict[int, LeafFacts] = {} if before is None else {leaf.oid: leaf for leaf in before.leaves}
    return {leaf.epoch for leaf in after.leaves if leaf.oid in had and had[leaf.oid].file != leaf.file}
