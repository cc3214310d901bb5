"""Reads TLS records from OpenSSL until there are no more: one compiled loop, which does not hold the interpreter's lock.

What an answer of OpenSSL's means does not belong here (`connection_transport.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias, cast, final

import numpy as np
from numba import types
from numba.core.typing.templates import Signature

from lakeproof.values.compiled import compiled

# OpenSSL takes an int; the room for the largest message is larger than what it holds.
_BYTES_MAX = 1 << 30
# The session, the address of a buffer, its size.
Read: TypeAlias = Callable[[int, int, np.int32], int]


@final
class _Read(types.WrapperAddressProtocol):
    """`SSL_read` of a library, as compiled code calls it; pointers are numbers of their size."""

    def __init__(self, openssl: ctypes.CDLL) -> None:
        self._address = ctypes.cast(openssl.SSL_read, ctypes.c_void_p).value or 0

    def __wrapper_address__(self) -> int:
        """Return the place of the machine code."""
        return self._address

    def signature(self) -> Signature:
        """Return the types."""
        return types.int32(types.intp, types.intp, types.int32)


def compiled_read(openssl: ctypes.CDLL) -> Read:
    """Return the library's `SSL_read` for compiled code."""
    return cast("Read", _Read(openssl))


@compiled
def read_records(read: Read, session: int, address: int, size: int) -> tuple[int, int]:
    """Return how many bytes were written at `address`, and the last answer: above 0 if they fill the `size` bytes."""
    count, last = 0, 1
    while count < size and last > 0:
        last = read(session, address + count, np.int32(min(size - count, _BYTES_MAX)))
        if last > 0:
            count += last
    return count, last
