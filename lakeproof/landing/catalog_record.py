"""A reading of the source's catalog as a manifest has it.

`catalog_history.py` finds records in a chain and handles the fingerprint's file; `lakeproof.catalog.differences` says what
a difference calls for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, model_validator

from lakeproof.catalog.differences import TableDifferences
from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.field_types import Count, LsnField, RelativePath, Sha256
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.storage.document import Part

_Rule = Annotated[str, Field(pattern=r"^[asr][0-9]+$")]


@dataclass(frozen=True, slots=True)
class FirstReading:
    """A reading for a new chain's head: it has every commit up to `lower_lsn`, and none that ends after `upper_lsn`."""

    fingerprint: Fingerprint
    lower_lsn: Lsn
    upper_lsn: Lsn
    rules: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CatalogRecord(Part):
    """A reading of the source's catalog that differed from the one before it, or a chain's first (`lower_lsn` None).

    Every commit that ends at or before `lower_lsn` was in the reading before, and every commit in this reading ends at or
    before `upper_lsn`: what `changes` names became so between the two. `path` is the whole fingerprint's. `rules` are the
    lines of the catalog that publish tables which nobody has named. Each has an xid with which nobody had written yet when
    the rule was first seen: the rule has been in force, unaltered, since then (`lakeproof.postgres.catalog.origins`).
    """

    lower_lsn: LsnField | None
    upper_lsn: LsnField
    path: RelativePath
    bytes: Count
    sha256: Sha256
    changes: tuple[TableDifferences, ...] = ()
    rules: Mapping[_Rule, Count] = field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> CatalogRecord:
        if self.lower_lsn is None and self.changes:
            raise ValueError("has no lower_lsn, but something differs from a reading before")
        if not all(change.differences for change in self.changes):
            raise ValueError("has a change without differences")
        return self

    def change_of(self, oid: Oid) -> TableDifferences | None:
        """Return the change of one table, None if the table does not differ."""
        return next((change for change in self.changes if change.oid == oid), None)
