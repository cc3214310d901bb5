"""How a loop over bytes is compiled: by numba, once per machine, without the interpreter's lock.

The loops themselves belong to the modules that import this; importing it costs 0.15 s and 60 MB, so they are imported where
decoding begins.

The machine code is kept beside the source, or, where that can't be written, in the user's cache folder (`NUMBA_CACHE_DIR`
names another). Where neither can be written, each process compiles for itself. Every loop is called with one set of argument
types: then two processes that compile at once write the same code into the same file, and a file never holds another's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

_Loop = TypeVar("_Loop", bound=Callable[..., object])


def compiled(loop: _Loop) -> _Loop:
    """`loop` as machine code; `compiled(loop).py_func` is the loop itself."""
    try:
        return cast("_Loop", numba.njit(nogil=True, cache=True)(loop))
    except RuntimeError:
        # numba finds no folder that it can write.
        return cast("_Loop", numba.njit(nogil=True)(loop))
