"""Compiles a loop over bytes: with numba, once per machine, to run without the interpreter's lock.

The modules that import this have the loops. Importing it costs 0.15 s and 60 MB, so those modules are imported only when
decoding begins.

The machine code is stored beside the source, or, if that can't be written, in the user's cache folder (`NUMBA_CACHE_DIR`
names another). If neither can be written, each process compiles for itself. Every loop is called with one set of argument
types: so two processes that compile at once write the same code into the same file, and no file holds another loop's code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

_Loop = TypeVar("_Loop", bound=Callable[..., object])


def compiled(loop: _Loop) -> _Loop:
    """Return `loop` as machine code; `compiled(loop).py_func` is the loop itself."""
    try:
        return cast("_Loop", numba.njit(nogil=True, cache=True)(loop))
    except RuntimeError:
        # numba has no folder that it can write.
        return cast("_Loop", numba.njit(nogil=True)(loop))
