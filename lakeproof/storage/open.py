"""Opens the store of a lake by its URL; the stores themselves do not belong here (`local.py`)."""

from __future__ import annotations

from pathlib import Path

from lakeproof.storage.store import Store, local_folder


def open_store(lake: str | Path) -> Store:
    """Return the store of a lake; raise ConfigError for an unsupported place."""
    from lakeproof.storage.local import LocalStore

    return LocalStore(local_folder(lake))
