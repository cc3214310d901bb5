"""Resolves Relation messages to schema versions by asking the catalog while the stream goes on.

`lakeproof.postgres.catalog.relations` derives the version from the catalog and from earlier readings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lakeproof.config.model import SourceConfig
from lakeproof.drain.catalog.readings import Readings
from lakeproof.errors import TransientError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation
from lakeproof.postgres.catalog.relations import ReadingsAround, TableNow, read_now, version_of
from lakeproof.postgres.connections.connect import Connection, close_quietly, connect
from lakeproof.postgres.connections.timeouts import Timeout, use_timeout
from lakeproof.schema import SchemaVersion

APPLICATION_NAME = "lakeproof drain catalog"
# So many columns are read at a time: with some hundred bytes each, all of a batch's tables might be too many.
COLUMNS_TOGETHER_MAX = 20_000


class CatalogResolver:
    """A `Resolver` with its own ordinary connection, opened when first needed and again after it was lost.

    The worker thread uses it, as it does the `readings`; `close` it when that has ended. `timeout` limits every wait for
    the catalog.

    A thousand tables in one batch are looked up together, since each look-up is five answers to wait for: `expect` the
    messages of a batch, then resolve them in this order.
    """

    def __init__(self, source: SourceConfig, readings: Readings, timeout: Timeout) -> None:
        self._source = source
        self._readings = readings
        self._timeout = timeout
        self._conn: Connection | None = None
        self._asked_at: dict[Oid, Lsn] = {}
        self._expected: deque[Relation] = deque()
        self._now: dict[Oid, TableNow] = {}

    def expect(self, relations: Iterable[Relation]) -> None:
        """Note the messages that will be resolved next, in this order; they have arrived."""
        self._expected, self._now = deque(relations), {}

    def __call__(self, relation: Relation, position: Lsn, previous: SchemaVersion | None) -> SchemaVersion:
        before, after, upper_lsn = self._readings.around(position)
        newer = self._asked_at.get(relation.oid, Lsn.ZERO) > upper_lsn
        self._asked_at[relation.oid] = position
        around = ReadingsAround(before, after, previous, previous_is_newer=newer)
        return version_of(self._source, relation, self._read(relation), around)

    def _read(self, relation: Relation) -> TableNow:
        """Return what the catalog has of the table now: read for this message, or for one before it in the same batch."""
        if self._expected and self._expected[0].oid == relation.oid:
            self._expected.popleft()
        now = self._now.pop(relation.oid, None)
        if now is not None:
            return now
        together, columns = {relation.oid: relation}, len(relation.columns)
        for following in self._expected:
            columns += len(following.columns)
            if columns > COLUMNS_TOGETHER_MAX:
                break
            # Of a table that comes twice, the second message is read for when its turn comes.
            together.setdefault(following.oid, following)
        self._now = self._ask(list(together.values()))
        return self._now.pop(relation.oid)

    def _ask(self, relations: list[Relation]) -> dict[Oid, TableNow]:
        if self._conn is not None:
            try:
                return read_now(self._conn, relations)
            except TransientError:
                # Anybody may have closed an idle connection; a new one shows whether the server is there.
                self.close()
        with use_timeout(self._timeout):
            self._conn = connect(self._source.dsn, APPLICATION_NAME)
        return read_now(self._conn, relations)

    def close(self) -> None:
        close_quietly(self._conn)
        self._conn = None
