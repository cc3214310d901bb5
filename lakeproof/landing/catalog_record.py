"""A reading of the source's catalog as a manifest has it, to JSON and strictly back.

`catalog_history.py` finds records in a chain and handles the fingerprint's file; `lakeproof.catalog.differences` says what
a difference calls for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeproof.catalog.differences import AddedColumn, Difference, TableChange, TableCreated
from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.storage.fields import Fields

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RULE = re.compile(r"[asr][0-9]+")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_WORDS = {d.value: d for d in Difference}


@dataclass(frozen=True, slots=True)
class FirstReading:
    """A reading for a new chain's head: it has every commit up to `lower_lsn`, and none that ends after `upper_lsn`."""

    fingerprint: Fingerprint
    lower_lsn: Lsn
    upper_lsn: Lsn
    rules: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """A reading of the source's catalog that differed from the one before it, or a chain's first (`lower_lsn` None).

    Every commit that ends at or before `lower_lsn` was in the reading before, and every commit in this reading ends at or
    before `upper_lsn`: what `changes` names became so between the two. `path` is the whole fingerprint's. `rules` are the
    lines of the catalog that publish tables which nobody has named. Each has an xid with which nobody had written yet when
    the rule was first seen: the rule has been in force, unaltered, since then (`lakeproof.postgres.catalog_origins`).
    """

    lower_lsn: Lsn | None
    upper_lsn: Lsn
    path: str
    bytes: int
    sha256: str
    changes: tuple[TableChange, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)

    def change_of(self, oid: Oid) -> TableChange | None:
        """Return the change of one table, None if the table does not differ."""
        return next((change for change in self.changes if change.oid == oid), None)


def catalog_to_json(record: CatalogRecord) -> dict[str, Any]:
    """Return the manifest's field `catalog`."""
    return {
        "lower_lsn": None if record.lower_lsn is None else str(record.lower_lsn),
        "upper_lsn": str(record.upper_lsn),
        "path": record.path,
        "bytes": record.bytes,
        "sha256": record.sha256,
        "changes": [_change_to_json(change) for change in record.changes],
        "rules": dict(sorted(record.rules.items())),
    }


def parse_catalog(fields: Fields) -> CatalogRecord:
    """Parse `catalog_to_json`; raises as `fields`."""
    record = CatalogRecord(
        lower_lsn=fields.optional("lower_lsn", lambda: fields.lsn("lower_lsn")),
        upper_lsn=fields.lsn("upper_lsn"),
        path=fields.path("path"),
        bytes=fields.count("bytes"),
        sha256=fields.matching("sha256", _SHA256),
        changes=tuple(_parse_change(change) for change in fields.objects("changes")),
        rules=_parse_rules(fields.object("rules")),
    )
    fields.end()
    if record.lower_lsn is None and record.changes:
        raise fields.damaged("lower_lsn", "is null, but something differs from a reading before")
    return record


def _change_to_json(change: TableChange) -> dict[str, Any]:
    return {
        "oid": int(change.oid),
        "table": change.table.key,
        "differences": [d.value for d in change.differences],
        "before": change.before,
        "after": change.after,
        "renamed_to": None if change.renamed_to is None else change.renamed_to.key,
        "added": [{"name": c.name, "attnum": c.attnum, "missing": c.missing} for c in change.added],
        "version": None if change.version is None else change.version.to_json(),
        "created": None if change.created is None else _created_to_json(change.created),
    }


def _created_to_json(created: TableCreated) -> dict[str, Any]:
    return {
        "version": created.version.to_json(),
        "named": created.named,
        "anchored": list(created.anchored),
        "numbered": created.numbered,
    }


def _parse_change(fields: Fields) -> TableChange:
    change = TableChange(
        oid=Oid(fields.count("oid")),
        table=fields.table("table"),
        differences=tuple(_difference(fields, word) for word in fields.items("differences")),
        before=fields.optional("before", lambda: fields.matching("before", _DIGEST)),
        after=fields.optional("after", lambda: fields.matching("after", _DIGEST)),
        renamed_to=fields.optional("renamed_to", lambda: fields.table("renamed_to")),
        added=tuple(_parse_added(column) for column in fields.objects("added")),
        version=fields.optional("version", lambda: fields.schema_version("version")),
        created=fields.optional("created", lambda: _parse_created(fields.object("created"))),
    )
    if not change.differences:
        raise fields.damaged("differences", "is empty")
    fields.end()
    return change


def _parse_created(fields: Fields) -> TableCreated:
    version, anchored = fields.schema_version("version"), fields.items("anchored")
    if not all(type(number) is int and number > 0 for number in anchored):
        raise fields.damaged("anchored", "is not a list of attribute numbers")
    created = TableCreated(version, fields.flag("named"), tuple(anchored), fields.flag("numbered"))
    fields.end()
    return created


def _parse_rules(fields: Fields) -> dict[str, int]:
    rules = {name: fields.count(name) for name in fields.doc if _RULE.fullmatch(name)}
    fields.end()
    return rules


def _difference(fields: Fields, word: Any) -> Difference:
    difference = _WORDS.get(word) if isinstance(word, str) else None
    if difference is None:
        raise fields.damaged("differences", "has a word that this format does not")
    return difference


def _parse_added(fields: Fields) -> AddedColumn:
    column = AddedColumn(
        fields.text("name"), fields.count("attnum"), fields.optional("missing", lambda: fields.text("missing"))
    )
    fields.end()
    return column
