"""One source's part of a lake: the store that has its files, and the keys under which they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lakeproof.config.location import LakeLocation
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class SourceLake:
    """A lake's store, and `paths`, the keys of one source's files in it."""

    store: Store
    paths: LakePaths

    @classmethod
    def open(cls, lake: LakeLocation | str | Path, source: str) -> SourceLake:
        """Open the part of `source`; raise ConfigError for an unsupported lake, or a name that no source can have."""
        return cls(open_store(lake), LakePaths(source))

    @property
    def source(self) -> str:
        """The source's name."""
        return self.paths.source

    def url(self, key: str) -> str:
        """Return the absolute path or URL under which Spark finds the key; errors name a file by it."""
        return self.store.url(key)
