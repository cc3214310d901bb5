"""Which publications a stream can be opened with: the server knows one only from the place in the WAL where it was made.

What a publication has is `lakeproof.postgres.catalog_published`'s; opening streams belongs to `lakeproof.commands.drain`.

    recorded          the chain's catalog has it: the stream read it there
    seen later        it is there now, and the catalog does not have it: it is read from where it was first seen on; until
                      then the others alone are. Its tables are then `not read` (`lakeproof.catalog.differences`) up to there
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakeproof.config.model import SourceConfig
from lakeproof.errors import TransientError
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn


class PublicationsChangedError(TransientError):
    """The source has other publications than the stream was opened with: it is opened anew, with those."""

    def __init__(self, source: SourceConfig) -> None:
        reason = "one of them was made or dropped while the drain ran"
        super().__init__(f"publications of {source.name}", reason, "connect again")


@dataclass(slots=True)
class Publications:
    """What one drain knows of its source's publications: where those were first seen that the chain's catalog lacks."""

    first_seen: dict[str, Lsn] = field(default_factory=dict)

    def readable(
        self, recorded: set[str] | None, there: Sequence[str], now: Lsn, end: Lsn
    ) -> tuple[list[str], Lsn | None]:
        """Those of `there` that can be read from the chain's `end` on, and up to where without the others.

        `recorded` are the chain's, `now` is the server's position when `there` was read. None where nothing is left out.
        """
        for name in there:
            if recorded is not None and name not in recorded:
                self.first_seen.setdefault(name, now)
        younger = {name for name in there if self.first_seen.get(name, Lsn.ZERO) > end}
        names = [name for name in there if name not in younger]
        if not younger or not names:
            return list(there), None
        return names, max(self.first_seen[name] for name in younger)


def recorded_names(chain: Chain) -> set[str] | None:
    """The publications of the chain's newest catalog; None where it has none. Raises LakeError where it is damaged."""
    recorded = newest_catalog(chain)
    return None if recorded is None else recorded.publication_names
