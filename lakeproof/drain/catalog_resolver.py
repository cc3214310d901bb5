"""Resolves Relation messages to schema versions by asking the catalog while the stream goes on.

`lakeproof.postgres.catalog_relations` derives the version from the catalog and from earlier readings.
"""

from __future__ import annotations

from lakeproof.config.model import SourceConfig
from lakeproof.drain.catalog_readings import Readings
from lakeproof.errors import TransientError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation
from lakeproof.postgres.catalog_relations import ReadingsAround, version_of
from lakeproof.postgres.connection import Connection, close_quietly, connect
from lakeproof.postgres.connection_timeouts import Timeout, use_timeout
from lakeproof.schema import SchemaVersion

APPLICATION_NAME = "lakeproof drain catalog"


class CatalogResolver:
    """A `Resolver` with its own ordinary connection, opened when first needed and again after it was lost.

    The worker thread uses it, as it does the `readings`; `close` it when that has ended. `timeout` limits every wait for
    the catalog.
    """

    def __init__(self, source: SourceConfig, readings: Readings, timeout: Timeout) -> None:
        self._source = source
        self._readings = readings
        self._timeout = timeout
        self._conn: Connection | None = None
        self._asked_at: dict[Oid, Lsn] = {}

    def __call__(self, relation: Relation, position: Lsn, previous: SchemaVersion | None) -> SchemaVersion:
        before, after, upper_lsn = self._readings.around(position)
        newer = self._asked_at.get(relation.oid, Lsn.ZERO) > upper_lsn
        self._asked_at[relation.oid] = position
        around = ReadingsAround(before, after, previous, previous_is_newer=newer)
        if self._conn is not None:
            try:
                return version_of(self._conn, self._source, relation, around)
            except TransientError:
                # Anybody may have closed an idle connection; a new one shows whether the server is there.
                self.close()
        with use_timeout(self._timeout):
            self._conn = connect(self._source.dsn, APPLICATION_NAME)
        return version_of(self._conn, self._source, relation, around)

    def close(self) -> None:
        """Close the connection."""
        close_quietly(self._conn)
        self._conn = None
