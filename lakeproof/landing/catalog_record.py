"""A reading of the source's catalog as a manifest has it, to JSON and strictly back.

The manifest around it belongs to `manifest.py`; finding records in a chain, and the fingerprint's file, to
`catalog_links.py`; what the differences call for to `lakeproof.catalog.differences`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeproof.catalog.differences import AddedColumn, Born, Difference, TableChange
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.storage.fields import Fields

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RULE = re.compile(r"[asr][0-9]+")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_WORDS = {d.value: d for d in Difference}


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """A reading of the source's catalog that differed from the one before it, or the first one (`since_lsn` None).

    Every commit that ends at or before `since_lsn` was in the reading before, every one in this ends at or before
    `noticed_lsn`: what `changes` names became so between the two. `path` is the whole fingerprint's. `rules` are the lines
    of the catalog that publish tables which nobody has named, each with an xid by which nobody had written when it was seen
    first: it has been in force, unaltered, since then (`lakeproof.postgres.catalog_births`).
    """

    since_lsn: Lsn | None
    noticed_lsn: Lsn
    path: str
    bytes: int
    sha256: str
    changes: tuple[TableChange, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)

    def change_of(self, oid: Oid) -> TableChange | None:
        """What it says about one table."""
        return next((change for change in self.changes if change.oid == oid), None)


def catalog_to_json(record: CatalogRecord) -> dict[str, Any]:
    """The manifest's field `catalog`."""
    return {
        "since_lsn": None if record.since_lsn is None else str(record.since_lsn),
        "noticed_lsn": str(record.noticed_lsn),
        "path": record.path,
        "bytes": record.bytes,
        "sha256": record.sha256,
        "changes": [_change_to_json(change) for change in record.changes],
        "rules": dict(sorted(record.rules.items())),
    }


def parse_catalog(fields: Fields) -> CatalogRecord:
    """The inverse; raises as `fields`."""
    record = CatalogRecord(
        since_lsn=fields.optional("since_lsn", lambda: fields.lsn("since_lsn")),
        noticed_lsn=fields.lsn("noticed_lsn"),
        path=fields.path("path"),
        bytes=fields.count("bytes"),
        sha256=fields.matching("sha256", _SHA256),
        changes=tuple(_parse_change(change) for change in fields.objects("changes")),
        rules=_parse_rules(fields.object("rules")),
    )
    fields.end()
    if record.since_lsn is None and record.changes:
        raise fields.damaged("since_lsn", "is null, but something differs from a reading before")
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
        "born": None if change.born is None else _born_to_json(change.born),
    }


def _born_to_json(born: Born) -> dict[str, Any]:
    return {
        "version": born.version.to_json(),
        "named": born.named,
        "anchored": list(born.anchored),
        "numbered": born.numbered,
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
        born=fields.optional("born", lambda: _parse_born(fields.object("born"))),
    )
    if not change.differences:
        raise fields.damaged("differences", "is empty")
    fields.end()
    return change


def _parse_born(fields: Fields) -> Born:
    version, anchored = fields.schema_version("version"), fields.items("anchored")
    if not all(type(number) is int and number > 0 for number in anchored):
        raise fields.damaged("anchored", "is not a list of attribute numbers")
    born = Born(version, fields.flag("named"), tuple(anchored), fields.flag("numbered"))
    fields.end()
    return born


def _parse_rules(fields: Fields) -> dict[str, int]:
    rules = {name: fields.count(name) for name in fields.doc if _RULE.fullmatch(name)}
    fields.end()
    return rules


def _difference(fields: Fields, word: Any) -> Difference:
    found = _WORDS.get(word) if isinstance(word, str) else None
    if found is None:
        raise fields.damaged("differences", "has a word that this format does not")
    return found


def _parse_added(fields: Fields) -> AddedColumn:
    column = AddedColumn(
        fields.text("name"), fields.count("attnum"), fields.optional("missing", lambda: fields.text("missing"))
    )
    fields.end()
    return column
