"""The features of Delta's that a reader of a table must know, each with the reason, from the table's log alone.

Switching one on belongs to `schema` and `protocol`, refusing names that need one to `lakeproof.lake.cycle.task`. No
Spark runs here: `status` asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import needs_mapping
from lakeproof.lake.delta.log.commits import TYPE_CHANGES, physical_names
from lakeproof.lake.delta.log.state import table_shape

VECTORS, MAPPING, WIDENING, NO_ZONE = "deletionVectors", "columnMapping", "typeWidening", "timestampNtz"
# What a portable table does without; a type of a column is not a matter of how a table is written.
NOT_PORTABLE = frozenset({VECTORS, MAPPING, WIDENING})
VECTORS_ENABLED = "delta.enableDeletionVectors"
# From these versions of the protocol on it lists features; version 2 for readers is column mapping, version 1 nothing.
LISTS_FEATURES_READER, LISTS_FEATURES_WRITER = 3, 7
_MAPS = 2


@dataclass(frozen=True, slots=True)
class ReaderFeatures:
    """What readers of one version of a table must know: feature → reason; `vectors`: deleted rows are marked in vectors."""

    reasons: Mapping[str, str]
    vectors: bool

    def beyond(self, before: ReaderFeatures) -> dict[str, str]:
        """Return the features that `before` did not need."""
        return {name: reason for name, reason in self.reasons.items() if name not in before.reasons}


def reader_features(path: str, version: int) -> ReaderFeatures:
    """Read the features of a version; raises LogGapError if its log can't be read."""
    shape = table_shape(path, version)
    names, fields = list(shape.protocol.get("readerFeatures") or []), shape.fields
    if shape.protocol["minReaderVersion"] < LISTS_FEATURES_READER:
        names = [MAPPING] if shape.protocol["minReaderVersion"] == _MAPS else []
    reasons = {name: "; ".join(_reasons(name, fields)) or "since an earlier change" for name in sorted(names)}
    return ReaderFeatures(reasons, shape.has_property(VECTORS_ENABLED, "true"))


def _reasons(feature: str, fields: list[dict[str, Any]]) -> Iterator[str]:
    if feature == VECTORS:
        yield "deleted rows are marked, and stay in their files"
    elif feature == MAPPING:
        yield from _renamings(fields)
    for field in fields:
        name, more = field["name"], field.get("metadata") or {}
        if feature == WIDENING and more.get(TYPE_CHANGES):
            yield f"{name} was {more[TYPE_CHANGES][0]['fromType']}"
        elif feature == NO_ZONE and "timestamp_ntz" in json.dumps(field["type"]):
            yield f"{name} is a timestamp without a time zone"


def _renamings(fields: list[dict[str, Any]]) -> Iterator[str]:
    """Yield why columns have other names in files: where one needs it, all that came since have a name of Delta's."""
    for name, in_files in physical_names(fields).items():
        if name.startswith(PUT_AWAY):
            yield f"{in_files} was dropped"
        elif needs_mapping([name]):
            yield f"a file can't have the name {name}"
        elif name != in_files and not in_files.startswith("col-"):
            yield f"{name} was {in_files}"
