"""The memory that a file's decoded rows take, as manifests and snapshots say it.

Counting it does not belong here (`decoded_size.py`): that needs Arrow, and who reads documents alone does without.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.field_types import Count
from lakeproof.storage.document import Part


@dataclass(frozen=True, slots=True)
class Decoded(Part):
    """Bytes of the values: of all rows (`bytes`), and of one row at most (`row`)."""

    bytes: Count
    row: Count
