"""Compiles a loop over bytes: with numba, once per machine, to run without the interpreter's lock; and arrays for it.

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
import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The octets that loops read, and offsets in them.
Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]
A = TypeVar("A", bound=np.generic)
_Loop = TypeVar("_Loop", bound=Callable[..., object])


def compiled(loop: _Loop) -> _Loop:
    """Return `loop` as machine code; `compiled(loop).py_func` is the loop itself."""
    try:
        return cast("_Loop", numba.njit(nogil=True, cache=True)(loop))
    except RuntimeError:
        # numba has no folder that it can write.
        return cast("_Loop", numba.njit(nogil=True)(loop))


def frozen(array: npt.NDArray[A]) -> npt.NDArray[A]:
    """Return the array as loops read it: a loop is compiled once for arrays that can be written, and once for others."""
    view: npt.NDArray[A] = array.view()
    view.flags.writeable = False
    return view


def text_buffers(texts: pa.Array) -> tuple[Octets, Places]:
    """Return the octets of texts, and each one's offsets in them, as loops read them."""
    _, offsets, octets = texts.buffers()
    places = np.frombuffer(offsets or bytes(4), np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return frozen(np.frombuffer(octets or b"", np.uint8)), frozen(places)
