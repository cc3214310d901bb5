"""Opens the store of a lake by its location; the stores themselves do not belong here (`local.py`, `object/store.py`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from lakeproof.config.location import LakeLocation, ObjectPlace
from lakeproof.errors import ConfigError
from lakeproof.storage.local import LocalStore, local_folder
from lakeproof.storage.store import Store

# A store has connections and knows whether it was probed, so a process keeps those that it used last.
_KEPT = 32
# The newest store that this process has opened in each place, by the URL of its root: Spark speaks of files by their URLs
# alone.
_opened: dict[str, Store] = {}


def open_store(lake: LakeLocation | str | Path) -> Store:
    """Return the store of a lake, or of an archive; raise ConfigError for an unsupported place.

    A place without its section `storage` is reached as the environment says.
    """
    location = LakeLocation.of(lake)
    place = _place(location)
    return register_store(
        LocalStore(local_folder(location.url), location) if place is None else _object_store(place, location)
    )


def register_store(store: Store) -> Store:
    """Return the store, after which `store_of` knows it."""
    _opened[store.url("").rstrip("/")] = store
    return store


def store_of(url: str) -> tuple[Store, str]:
    """Return the opened store that has the file or folder at an absolute path or URL, and its key there.

    A place that is in no opened store is a store by itself. Raises ConfigError as `open_store`.
    """
    place = url.rstrip("/")
    root = place
    while root and root not in _opened:
        root = root.rpartition("/")[0]
    if root:
        return _opened[root], place[len(root) + 1 :]
    location = LakeLocation(url)
    in_objects = _place(location)
    return LocalStore(local_folder(url)) if in_objects is None else _object_store(in_objects, location), ""


def folder_to_check(lake: LakeLocation | str | Path) -> Path | None:
    """Return the folder of this machine that the lake is, for looking at its disk; None if it is in an object store.

    Raises ConfigError as `open_store`.
    """
    location = LakeLocation.of(lake)
    return local_folder(location.url) if _place(location) is None else None


def _place(location: LakeLocation) -> ObjectPlace | None:
    try:
        return ObjectPlace.parse(location.url)
    except ValueError as error:
        raise ConfigError("lake", f"{location.url[:80]} {error}", "correct `lake`") from None


@lru_cache(maxsize=_KEPT)
def _object_store(place: ObjectPlace, location: LakeLocation) -> Store:
    # Imported here: a lake in a folder needs no client of object stores.
    from lakeproof.storage.object.store import ObjectStore

    return ObjectStore(place, location)
