"""A folder in a store, e.g. that of a Delta table: its files by their names there.

`open.py` opens a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.storage.open import store_of
from lakeproof.storage.store import Store, StoredFile


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder `key` of a store; a name is a path below it."""

    store: Store
    key: str

    @classmethod
    def at(cls, url: str) -> Folder:
        """Return the folder at an absolute path or URL, of the store that this process has opened."""
        return cls(*store_of(url))

    @property
    def url(self) -> str:
        """The absolute path or URL under which Spark finds it."""
        return self.store.url(self.key)

    def key_of(self, name: str) -> str:
        """Return the key of a file."""
        return f"{self.key}/{name}" if self.key else name

    def url_of(self, name: str) -> str:
        """Return the absolute path or URL of a file."""
        return self.store.url(self.key_of(name))

    def get(self, name: str) -> bytes:
        """Return a file's bytes; raises NotFoundError."""
        return self.store.get(self.key_of(name))

    def delete(self, name: str) -> None:
        """Remove a file; a missing one is no error."""
        self.store.delete(self.key_of(name))

    def files(self, below: str = "", after: str = "") -> Iterator[StoredFile]:
        """Yield every file in the folder, or in one below it, in any order; `key` is its name here.

        `after`: as `Store.entries`, but a name here.
        """
        start = len(self.key) + 1 if self.key else 0
        for file in self.store.entries(self.key_of(below) if below else self.key, self.key_of(after) if after else ""):
            yield StoredFile(file.key[start:], file.bytes)
