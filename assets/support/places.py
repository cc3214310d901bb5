"""Places in a lake as URIs for people and catalogs: `file:///…`, `s3://…`, `gs://…`.

The places themselves do not belong here (`lakeproof.storage.paths`), nor the URLs that Spark needs (the store forms them).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePosixPath

from lakeproof.config.location import LakeLocation
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store

# Hadoop's names of stores, and everybody else's.
_SCHEMES = {"s3a": "s3"}


def uri(lake: LakeLocation, key: str) -> str:
    """Return the URI of a key in a lake."""
    url = _store(lake).url(key)
    scheme, separator, rest = url.partition("://")
    if separator:
        return f"{_SCHEMES.get(scheme, scheme)}://{rest}"
    return PurePosixPath(url).as_uri()


@lru_cache(maxsize=4)
def _store(lake: LakeLocation) -> Store:
    """Return the lake's store, opened once for all the assets of a location."""
    return open_store(lake)
