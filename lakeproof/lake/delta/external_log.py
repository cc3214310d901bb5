"""The newest version of a Delta table outside of the lake, from its log alone: what a refresh is due for.

Reading the table's rows does not belong here (`versions`), nor deciding who reads it (`lakeproof.views.external`).
"""

from __future__ import annotations

from lakeproof.config.model import Config
from lakeproof.lake.delta.log import NO_VERSION, newest_version
from lakeproof.storage.open import open_store


def newest_external(config: Config, path: str, since: int = NO_VERSION) -> int:
    """Return the newest version of the table at `path`, from `since` on; NO_VERSION if there is none.

    The store is reached as the lake's (`storage`). Raises OSError if nobody may read it.
    """
    open_store(config.location_of(path))
    return newest_version(path, since)
