"""The errors of a place where a landing, or a lake, is expected and there is none: forgotten, or a slip in its path."""

from __future__ import annotations

from lakeproof.errors import LakeError
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


def check_is_lake(store: Store) -> None:
    """Raise LakeError if nothing is in the place of a lake."""
    if not store.folders(""):
        place = store.url("").rstrip("/")
        raise LakeError(f"lake {place}", "there is no lake in this place", "correct its path")


def no_landing(lake: SourceLake) -> LakeError:
    """Return the error of a source that nothing has been copied of."""
    first = f"run `lakeproof bootstrap {lake.source}` first"
    if not lake.store.folders(""):
        place, remedy = lake.store.url("").rstrip("/"), f"correct `lake` of the configuration, or {first}"
        return LakeError(f"lake {place}", "there is no lake in this place", remedy)
    return LakeError(f"{lake.source}: landing", "there is none yet", first)
