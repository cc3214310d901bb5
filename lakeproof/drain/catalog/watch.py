"""Polls the source's catalog while a drain runs, since the stream does not report most effects of ALTER.

`lakeproof.postgres.catalog.fingerprint` reads the catalog; `lakeproof.catalog.differences` says what a difference means.

    when     at every connect, before anything is landed; every `drain.catalog_interval_s`; when a Relation message names
             another schema; once more at a session's end
    where    in the flusher's thread, on its own connection; the thread that answers the server never waits for it
    result   nothing differs: the next manifests say how far the catalog has been read (`catalog_lsn`)
             something differs: a manifest, with the tables, what differs, and since when it may differ

A reading that fails is retried: at a connect it ends the session (which is retried as a whole); later the position up to
which the catalog is known just stays where it is.

Known weakness: an alteration that is undone between two readings leaves no trace, unless the catalog's line is a different
one by then (it is for a table taken out of its publication and put back; it is not for a table moved out of a published
schema and back).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from psycopg.sql import SQL

from lakeproof.catalog.differences import (
    AddedColumn,
    Consequence,
    Difference,
    TableDifferences,
    compare,
    consequence,
)
from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import SourceConfig
from lakeproof.drain.catalog.created_tables import created_in_stream, rules_in_force
from lakeproof.drain.catalog.empty_tables import with_empty
from lakeproof.drain.catalog.new_files import (
    is_emptied_by,
    may_be_emptied_by,
    truncated_by_root,
    without_empty_partitions,
)
from lakeproof.drain.catalog.passing_partitions import PassingPartitions
from lakeproof.drain.catalog.publications import (
    ManyTablesError,
    NameOutdatedError,
    PartitionAmidError,
    PublicationsChangedError,
)
from lakeproof.drain.catalog.readings import Readings
from lakeproof.errors import TransientError
from lakeproof.failpoints import failpoint
from lakeproof.landing.catalog_history import append_catalog, newest_catalog_manifest, put_fingerprint, read_fingerprint
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.pgoutput.rows import PartitionRows
from lakeproof.postgres.catalog.fingerprint import CatalogReading, CommitVisibility, existing, observe_catalog
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.catalog.relations import versions_in
from lakeproof.postgres.connections.connect import Connection, close_quietly, connect, source_errors
from lakeproof.postgres.connections.timeouts import Timeout, use_timeout
from lakeproof.schema import SchemaVersion

APPLICATION_NAME = "lakeproof drain watch"
# A reading takes a second for 10,000 tables; one that takes this long is blocked.
_STATEMENT_TIMEOUT_MS = 30_000
# A new table causes a reading at least this long after the last one.
_NEW_TABLES_S = 1.0
# The size of a partition is asked of its file, which an ALTER may have locked.
_LOCK_TIMEOUT_MS = 500
_NEW_FILES = frozenset({Difference.PARTITION_FILE, Difference.REWRITTEN})
# A version takes some 5 KB here, and in the server's process. Some sources create and drop tables all the time.
TABLES_GONE_MAX = 20_000
# The pause after a failed reading.
_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A table that got new files, or whose partitions did: past `upper_lsn` the stream shows if a TRUNCATE did that."""

    files: str
    upper_lsn: Lsn


@dataclass(slots=True)
class Carried:
    """What a drain's session leaves to the next one.

    `passing` are partitions to be judged. With `passes_number` a reading is recorded even if nothing differs, so that the
    chain passes its next number.
    """

    passing: PassingPartitions = field(default_factory=PassingPartitions)
    passes_number: bool = False


class CatalogWatch:
    """Watches the catalog for one session of a drain. For the flusher's thread; `close` it when that has ended.

    The stream was opened with `publications`; `existing` are all that the source then had; `chain` is the flusher's.
    `timeout` limits every wait for the catalog. `changes` are the differences that nobody has reported yet. `carried` is
    what the drain's sessions share.
    """

    def __init__(
        self,
        source: SourceConfig,
        chain: Chain,
        publications: Sequence[str],
        writer: str,
        timeout: Timeout,
        *,
        existing: Sequence[str] | None = None,
    ) -> None:
        self._source = source
        self._timeout = timeout
        self._chain = chain
        self._publications = list(publications)
        self._existing = set(publications if existing is None else existing)
        self._writer = writer
        self._conn: Connection | None = None
        self._previous: Fingerprint | None = None
        self._rules: Mapping[str, int] = {}
        self._visibility = CommitVisibility(chain.newest.catalog_lsn or Lsn.ZERO)
        self._waiting: dict[Oid, _Waiting] = {}
        self._schemas: dict[Oid, SchemaVersion] = {}
        self._renamed: dict[Oid, tuple[TableName, Lsn]] = {}
        self._seen: list[PartitionRows] = []
        self._due_at = 0.0
        self._retry_at = 0.0
        self._read_at = 0.0
        self._has_read = False
        self._last = False
        self.catalog_lsn = chain.newest.catalog_lsn
        self.readings = Readings(chain)
        self.changes: deque[TableDifferences] = deque()
        self.carried = Carried()

    @property
    def wait_s(self) -> float:
        return max(0.0, max(self._due_at, self._retry_at) - time.monotonic())

    @property
    def due(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        known_to = [
            *(w.upper_lsn for w in self._waiting.values()),
            *(upper_lsn for _, upper_lsn in self._renamed.values()),
        ]
        return self.wait_s == 0 or any(upper_lsn <= self._chain.end for upper_lsn in known_to)

    def saw(self, version: SchemaVersion) -> None:
        """Note a Relation message's version; if it is new, or of a new table, a reading is due soon."""
        before = self._schemas.get(version.oid)
        self._schemas[version.oid] = version
        if before is not None and before.id != version.id:
            self._due_at = 0.0
        elif before is None and self._previous is not None and version.oid not in self._previous.tables:
            # A table created in the stream should be read before it is altered. Some sources create tables all the time.
            self._due_at = min(self._due_at, self._read_at + _NEW_TABLES_S)

    def passed(self, partitions: Sequence[PartitionRows]) -> bool:
        """Note partitions that announced rows of their root; True if one is in no reading, so that one is due at once."""
        unread = False
        for partition in partitions:
            before, after, _ = self.readings.around(partition.transaction.end_lsn)
            unread |= self.carried.passing.note(partition, (self._previous, before, after))
        if unread:
            self._due_at = 0.0
        return unread

    def look(self, *, last: bool = False) -> Manifest | None:
        """Read the catalog and compare; returns the manifest that was appended if something differs. No segment may be open.

        The `last` reading of a session decides what earlier ones could not tell apart, as the worse of both.
        Raises FencedError if another writer has the number, StreamOutdatedError if the stream has to be opened again, and
        the error of a session's first reading.
        """
        if not last:
            self._check_stream()
        self._read_at = time.monotonic()
        self._due_at = self._read_at + self._source.drain.catalog_interval_s
        try:
            if self._previous is None:
                self._recall()
            conn = self._connection()
            reading, existing_tables = self._read(conn)
        except PublicationsChangedError:
            raise
        except TransientError:
            self.close()
            if not self._has_read:
                raise
            # Even if more is due: the stream needs time between two attempts.
            self._retry_at = time.monotonic() + _RETRY_S
            return None
        self._has_read, self._last = True, last
        self._note_names(reading)
        if self._previous is None:
            return self._record(reading, None, reading.fingerprint, [])
        return self._compare(conn, self._previous, reading, existing_tables)

    def look_amid(self) -> None:
        """Read the catalog as `look` does, and raise PartitionAmidError: the transaction in hand has to come again."""
        self.look()
        raise PartitionAmidError(self._source)

    def close(self) -> None:
        close_quietly(self._conn)
        self._conn = None

    def _note_names(self, reading: CatalogReading) -> None:
        """Note the tables that the stream has announced by another name than this reading's."""
        for oid, version in self._schemas.items():
            table = reading.fingerprint.tables.get(oid)
            if table is None or table.table == version.table:
                self._renamed.pop(oid, None)
            elif oid not in self._renamed or self._renamed[oid][0] != table.table:
                self._renamed[oid] = table.table, reading.upper_lsn

    def _check_stream(self) -> None:
        """Raise ManyTablesError or NameOutdatedError if the stream should be opened again.

        A walsender announces a partitioned table once for each partition, and not again when the root alone is renamed: once
        the stream is past a reading, it would go on with a name that is not the reading's.
        """
        if self._previous is not None and len(self._schemas) > len(self._previous.tables) + TABLES_GONE_MAX:
            raise ManyTablesError(self._source, len(self._schemas))
        for oid, (name, upper_lsn) in self._renamed.items():
            if upper_lsn <= self._chain.end and self._schemas[oid].table != name:
                raise NameOutdatedError(self._source, self._schemas[oid].table, name)

    def _recall(self) -> None:
        """Use the newest reading of the chain, if it has one, as the one before."""
        manifest = newest_catalog_manifest(self._chain)
        if manifest is not None and manifest.catalog is not None:
            self._previous, self._rules = read_fingerprint(self._chain, manifest), manifest.catalog.rules

    def _connection(self) -> Connection:
        if self._conn is None:
            with use_timeout(self._timeout):
                self._conn = connect(self._source.dsn, APPLICATION_NAME)
            with source_errors("the source's catalog"):
                # Compiling the query takes longer than running it.
                self._conn.execute(SQL("SET jit = off"))
                self._conn.execute(SQL("SET statement_timeout = {}").format(_STATEMENT_TIMEOUT_MS))
                self._conn.execute(SQL("SET lock_timeout = {}").format(_LOCK_TIMEOUT_MS))
        return self._conn

    def _read(self, conn: Connection) -> tuple[CatalogReading, frozenset[Oid]]:
        if set(publications_of(conn, self._source)) != self._existing:
            raise PublicationsChangedError(self._source)
        self._seen = self.carried.passing.visible(conn)
        before = self._previous
        if before is None:
            return observe_catalog(conn, self._publications, self._visibility), frozenset()
        created = partial(created_in_stream, conn, self._source, before, self._rules)
        reading = observe_catalog(conn, self._publications, self._visibility, created)
        return reading, existing(conn, before.tables.keys() - reading.fingerprint.tables.keys())

    def _compare(
        self, conn: Connection, before: Fingerprint, reading: CatalogReading, existing_tables: frozenset[Oid]
    ) -> Manifest | None:
        """Record what differs from the reading before, if something does."""
        fingerprint, changes = reading.fingerprint, list[TableDifferences]()
        for each in compare(before, fingerprint, existing_tables):
            change = _marked_as_created(_marked_as_unread(each, before, fingerprint), reading)
            if Difference.PARTITION_ATTACHED in change.differences:
                tables = before.tables[change.oid], fingerprint.tables[change.oid]
                change = without_empty_partitions(conn, change, *tables)
            changes.append(change)
        now, later = self._judge_files(conn, before, changes, reading)
        now, reading = with_empty(conn, self._source, self._publications, now, reading)
        versions = versions_in(
            conn, self._source, fingerprint, [c.oid for c in now if c.consequence is Consequence.APPLY]
        )
        now = [replace(change, version=versions.get(change.oid)) for change in now]
        now, passed_from = self.carried.passing.judge(self._seen, now, before, fingerprint)
        if later:
            kept = dict(fingerprint.tables) | {oid: before.tables[oid] for oid in later}
            fingerprint = Fingerprint(kept, fingerprint.types, fingerprint.publications)
        since = self.catalog_lsn or self._chain.head.end_lsn
        self.carried.passing.end(self._seen, reading.upper_lsn)
        if self.carried.passing:
            self._due_at = self._read_at + _NEW_TABLES_S
        passes, self.carried.passes_number = self.carried.passes_number, False
        if passes or now or fingerprint != before or reading.rules.keys() != self._rules.keys():
            return self._record(reading, since, fingerprint, now, complete=not later, passed_from=passed_from)
        self._previous = fingerprint
        if not later:
            self.catalog_lsn = self.readings.lower_lsn = reading.lower_lsn
        return None

    def _record(
        self,
        reading: CatalogReading,
        since: Lsn | None,
        fingerprint: Fingerprint,
        changes: list[TableDifferences],
        *,
        complete: bool = True,
        passed_from: Lsn | None = None,
    ) -> Manifest:
        chain = self._chain
        failpoint("drain.before_fingerprint")
        put = put_fingerprint(chain.lake, chain.incarnation, fingerprint, number=chain.next_number, writer=self._writer)
        failpoint("drain.after_fingerprint")
        read_until = reading.lower_lsn if complete or since is None else since
        rules = rules_in_force(self._previous, self._rules, reading)
        if since is not None and passed_from is not None:
            # The reading before may be newer than what the stream has come to.
            since = min(since, passed_from)
        record = CatalogRecord(since, reading.upper_lsn, *put, tuple(changes), rules)
        manifest = append_catalog(chain, self._writer, record, read_until)
        self._previous, self._rules, self.catalog_lsn = fingerprint, rules, read_until
        self.readings.add(manifest, fingerprint, read_until)
        self.changes.extend(c for c in changes if c.consequence is not Consequence.IGNORE)
        return manifest

    def _judge_files(
        self, conn: Connection, before: Fingerprint, changes: list[TableDifferences], reading: CatalogReading
    ) -> tuple[list[TableDifferences], set[Oid]]:
        """Return the changes, truncated tables distinguished from others with new files, and those of unknown cause."""
        now: list[TableDifferences] = []
        later: set[Oid] = set()
        for change in changes:
            truncated = self._truncated(conn, change, before, reading.fingerprint)
            if truncated is None:
                now.append(change)
                continue
            others = tuple(d for d in change.differences if d not in _NEW_FILES)
            if truncated():
                by_truncate = (
                    Difference.ROOT_TRUNCATED if Difference.PARTITION_FILE in change.differences else Difference.FILE
                )
                now.append(replace(change, differences=(*others, by_truncate)))
            elif consequence(others) is not Consequence.IGNORE or self._passed(change.oid, reading):
                now.append(change)
            else:
                later.add(change.oid)
        self._waiting = {oid: w for oid, w in self._waiting.items() if oid in later}
        return now, later

    def _passed(self, oid: Oid, reading: CatalogReading) -> bool:
        """True if the stream is past the reading that first had these files: a TRUNCATE would have come by now."""
        table = reading.fingerprint.tables[oid]
        files = f"{table.file} {table.leaves_text}"
        waiting = self._waiting.get(oid)
        if waiting is None or waiting.files != files:
            self._waiting[oid] = _Waiting(files, reading.upper_lsn)
            return reading.upper_lsn <= self._chain.end
        return self._last or waiting.upper_lsn <= self._chain.end

    def _truncated(
        self, conn: Connection, change: TableDifferences, old: Fingerprint, new: Fingerprint
    ) -> Callable[[], bool] | None:
        """Return what asks the stream for the TRUNCATE that gave a table its new files; None if that is not the question."""
        if not _NEW_FILES & set(change.differences):
            return None
        since = self.catalog_lsn or self._chain.kept_from
        before, after = old.tables[change.oid], new.tables[change.oid]
        if Difference.PARTITION_FILE in change.differences:
            return partial(truncated_by_root, self._chain, since, before, after)
        xid = may_be_emptied_by(conn, before, after) if after.kind == "r" else None
        return None if xid is None else partial(is_emptied_by, xid, self._chain, since, after.oid)


def _marked_as_unread(change: TableDifferences, before: Fingerprint, now: Fingerprint) -> TableDifferences:
    """Mark the change of a table that is only in publications that were not read before."""
    table, read_before = now.tables.get(change.oid), before.publication_names
    if table is None or any(now.publications[e.publication].name in read_before for e in table.entries):
        return change
    return replace(change, differences=(*change.differences, Difference.UNREAD))


def _marked_as_created(change: TableDifferences, reading: CatalogReading) -> TableDifferences:
    """Mark a table that entered the publication as created in the stream if it was."""
    created = reading.created.get(change.oid)
    if created is None or change.differences != (Difference.ENTERED,):
        return change
    table = reading.fingerprint.tables[change.oid]
    # Nobody will ask for the columns that the table was created with.
    added = tuple(AddedColumn(c.name, c.attnum, c.missing) for c in reading.fingerprint.sent(table))
    return replace(change, differences=(Difference.CREATED,), added=added, created=created)
