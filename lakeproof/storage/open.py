"""Opens the store of a lake by its URL; the stores themselves do not belong here (`local.py`)."""

from __future__ import annotations

from pathlib import Path

from lakeproof.storage.local import LocalStore, local_folder
from lakeproof.storage.store import Store


def open_store(lake: str | Path) -> Store:
    """Return the store of a lake, or of an archive; raise ConfigError for an unsupported place."""
    return LocalStore(local_folder(lake))


def folder_to_check(lake: str | Path) -> Path:
    """Return the folder of this machine that the lake is, for looking at its disk; raise ConfigError as `open_store`."""
    return local_folder(lake)
