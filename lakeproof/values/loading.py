"""Reports a compiled loop that can't be loaded as an error of ours.

The loops do not belong here, and this does not import the compiler (`compiled.py`): who reports need not decode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeproof.errors import InvariantError


@contextmanager
def loading() -> Iterator[None]:
    """Raise InvariantError if a loop that is run within can't be loaded."""
    try:
        yield
    except Exception as error:
        # A power cut left a cache file half written, or another installation wrote into the folder.
        raise InvariantError(
            "compiled loops",
            f"they can't be loaded ({type(error).__name__})",
            "remove the files *.nbi and *.nbc below lakeproof's __pycache__ folders, ~/.cache/numba and $NUMBA_CACHE_DIR,"
            " then start again",
        ) from error
