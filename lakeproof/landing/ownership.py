"""`source.json`: the source that owns a lake.

The source of one incarnation's chain is in its head (`manifest.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.field_types import Count
from lakeproof.storage.document import Document


@dataclass(frozen=True, slots=True)
class SourceDoc(Document):
    """The owner of a lake: `system_id` and `database` are IDENTIFY_SYSTEM's; the database is identified by its OID."""

    FORMAT = "lakeproof.source/1"

    source: str
    system_id: str
    database: str
    database_oid: Count
    created_at: str
