"""Opens the store of a lake by its URL."""

from __future__ import annotations

from pathlib import Path

from lakeproof.storage.store import Store, local_folder


def open_store(lake: str | Path) -> Store:
    """The store of a lake; raises ConfigError for a place that is not supported."""
    from lakeproof.storage.local import LocalStore

    return LocalStore(local_folder(lake))
