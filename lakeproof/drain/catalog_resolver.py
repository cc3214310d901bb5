"""Asking what a Relation message stands for, while the stream goes on.

What is made of the catalog's answer, and of what was read of it before, belongs to `lakeproof.postgres.catalog_relations`;
which versions are told to the manifest, to `flush.py`.
"""

from __future__ import annotations

from lakeproof.config.model import SourceConfig
from lakeproof.drain.catalog_readings import Readings
from lakeproof.errors import TransientError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation
from lakeproof.postgres.catalog_relations import Around, version_of
from lakeproof.postgres.connection import Connection, close_quietly, connect
from lakeproof.postgres.connection_timeouts import Patience, within
from lakeproof.schema import SchemaVersion

APPLICATION_NAME = "lakeproof drain catalog"


class CatalogResolver:
    """A `Resolver` with an ordinary connection of its own, made when it is first needed and again when it was lost.

    Used by the worker thread, as are the `readings`; `close` when that has ended. The catalog's answers are waited for with
    `patience`.
    """

    def __init__(self, source: SourceConfig, readings: Readings, patience: Patience) -> None:
        self._source = source
        self._readings = readings
        self._patience = patience
        self._conn: Connection | None = None
        self._asked_at: dict[Oid, Lsn] = {}

    def __call__(self, relation: Relation, position: Lsn, known: SchemaVersion | None) -> SchemaVersion:
        before, after, noticed = self._readings.around(position)
        newer = self._asked_at.get(relation.oid, Lsn.ZERO) > noticed
        self._asked_at[relation.oid] = position
        around = Around(before, after, known, known_is_newer=newer)
        if self._conn is not None:
            try:
                return version_of(self._conn, self._source, relation, around)
            except TransientError:
                # An idle connection may have been closed by anyone; a new one tells.
                self.close()
        with within(self._patience):
            self._conn = connect(self._source.dsn, APPLICATION_NAME)
        return version_of(self._conn, self._source, relation, around)

    def close(self) -> None:
        """Close the connection."""
        close_quietly(self._conn)
        self._conn = None
