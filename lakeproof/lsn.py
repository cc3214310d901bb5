"""A place in PostgreSQL's write-ahead log, as a type.

Reading a server does not belong here: an `Lsn` is a value. An LSN is never passed as a bare `int` or `str`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_LIMIT = 1 << 64


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A byte address in the WAL, 0 to 2**64 - 1; 0 is PostgreSQL's "no position".

    `str()` gives PostgreSQL's text (`0/16B3748`), `int()` the number that plots and Parquet columns carry.
    """

    value: int

    ZERO: ClassVar[Lsn]

    def __post_init__(self) -> None:
        if not 0 <= self.value < _LIMIT:
            raise ValueError(f"an LSN lies between 0 and 2**64 - 1, not {self.value}")

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parse PostgreSQL's text form; raise ValueError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not an LSN: {text[:40]!r} (the form is 16B3/748, two hexadecimal numbers)")
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"

    def __int__(self) -> int:
        return self.value

    def __sub__(self, other: Lsn) -> int:
        """Return the distance in bytes, negative if `other` is later."""
        return self.value - other.value


Lsn.ZERO = Lsn(0)
