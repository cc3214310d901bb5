"""Selects the publications that a stream can be opened with: the server knows one only from its creation in the WAL on.

`supervisor.py` opens the streams.

    recorded          the chain's catalog has it: the stream can read it from the chain's end on
    seen later        it exists now, but the chain's catalog does not have it: it is read from the position where it was
                      first seen; until then the other publications are read alone. Up to that position its tables are
                      `not read` (`lakeproof.catalog.differences`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakeproof.config.model import SourceConfig
from lakeproof.errors import TransientError
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName


class StreamOutdatedError(TransientError):
    """The stream was opened with, or says, what is so no more: it is opened again."""


class PublicationsChangedError(StreamOutdatedError):
    """The source has other publications than the stream was opened with."""

    def __init__(self, source: SourceConfig) -> None:
        reason = "one of them was created or dropped while the drain ran"
        super().__init__(f"publications of {source.name}", reason, "connect again")


class PartitionAmidError(StreamOutdatedError):
    """Rows came by a partition that no reading had, amid a large transaction: it is to come again after the reading."""

    def __init__(self, source: SourceConfig) -> None:
        reason = "amid a large transaction, rows came by a partition that the catalog had not been read with"
        super().__init__(f"stream of {source.name}", reason, "connect again, now that it has been read")


class ManyTablesError(StreamOutdatedError):
    """The stream has announced so many tables since it was opened that most of them are gone."""

    def __init__(self, source: SourceConfig, announced: int) -> None:
        reason = f"it has announced {announced} tables, most of which are gone, and each takes memory"
        super().__init__(f"stream of {source.name}", reason, "connect again")


class NameOutdatedError(StreamOutdatedError):
    """The stream has announced a table by a name that it has no more, and may go on with it."""

    def __init__(self, source: SourceConfig, before: TableName, now: TableName) -> None:
        super().__init__(f"stream of {source.name}", f"it calls {now} by its former name {before}", "connect again")


@dataclass(slots=True)
class Publications:
    """The positions at which one drain first saw publications that the chain's catalog lacks."""

    first_seen: dict[str, Lsn] = field(default_factory=dict)

    def readable(
        self, recorded: set[str] | None, existing: Sequence[str], now: Lsn, end: Lsn
    ) -> tuple[list[str], Lsn | None]:
        """Return the publications readable from `end`, and the position until which the other publications must be left out.

        The position is None if none is left out. `recorded` are the chain's publications, `existing` the source's, and `now`
        is the server's position when `existing` was read.
        """
        for name in existing:
            if recorded is not None and name not in recorded:
                self.first_seen.setdefault(name, now)
        younger = {name for name in existing if self.first_seen.get(name, Lsn.ZERO) > end}
        names = [name for name in existing if name not in younger]
        if not younger or not names:
            return list(existing), None
        return names, max(self.first_seen[name] for name in younger)


def recorded_names(chain: Chain) -> set[str] | None:
    """Return the publications in the chain's newest catalog, None if it has none. Raises LakeError if it is damaged."""
    recorded = newest_catalog(chain)
    return None if recorded is None else recorded.publication_names
