"""Shapes that a table has by the catalog's records, though no row of them has come.

A shape that a row brings belongs to `shape_plan`, which also says whether a change can be made in place; what puts a table
in doubt to `trust`.

A record of the catalog has the shape of each table that differs. Every commit in it ends at or before its `noticed`, so at
that position the table has the shape, and a cycle ends there to give it to the lake, unless a row has brought it before.
A row that came while the catalog was read may have brought a newer one: then the record is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakeproof.catalog.differences import Verdict
from lakeproof.lake.planning.schema_change import taken_in
from lakeproof.lake.planning.schema_changes import Turn, decide
from lakeproof.lake.records.documents import CutTable
from lakeproof.landing.catalog_history import catalog_links
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion


def idle_turn(chain: Chain, start: Lsn, tables: Mapping[TableName, CutTable]) -> tuple[Turn, list[Lsn]]:
    """What becomes of the tables (in the lake, at `start`, not held) that have another shape by a record noticed at `start`.

    And where the range must end for a record that was noticed later.
    """
    found, bounds = Turn(), []
    newest: dict[TableName, tuple[Manifest, SchemaVersion]] = {}
    for link, version in _shapes(chain, start):
        at = tables.get(version.table)
        if at is None or at.version.oid != version.oid:
            continue
        if _noticed(link) == start:
            newest[version.table] = link, version
        elif not _same(at.version, version):
            bounds.append(_noticed(link))
    for table, (link, version) in newest.items():
        at = tables[table]
        if not _same(at.version, version) and at.snapshot_lsn < start and not _brought_meanwhile(chain, link, at):
            decide(chain, at, [version], start, found, mixed=False)
    return found, bounds


def _shapes(chain: Chain, start: Lsn) -> Iterator[tuple[Manifest, SchemaVersion]]:
    """The shapes in the records that were noticed at or after `start`, where nothing else about the table differs."""
    for link in catalog_links(chain, start):
        for change in () if link.catalog is None else link.catalog.changes:
            if change.version is not None and change.verdict is Verdict.APPLY:
                yield link, change.version


def _noticed(link: Manifest) -> Lsn:
    return Lsn.ZERO if link.catalog is None else link.catalog.noticed_lsn


def _brought_meanwhile(chain: Chain, link: Manifest, at: CutTable) -> bool:
    """Whether a row brought the lake's shape after the reading had begun: it may be newer than the record's."""
    settled, noticed = link.catalog_lsn or Lsn.ZERO, _noticed(link)
    if settled >= noticed:
        return False
    return any(
        settled < entry.from_lsn <= noticed and taken_in(entry.version).id == at.version.id
        for manifest in chain.between(max(settled, chain.kept_from), noticed)
        for entry in manifest.schemas
    )


def _same(a: SchemaVersion, b: SchemaVersion) -> bool:
    """Whether the catalog says the same of both; the configuration they were made by may differ."""
    return _facts(a) == _facts(b)


def _facts(version: SchemaVersion) -> list[Any]:
    columns = [(c.attnum, c.name, c.type_oid, c.typmod, c.identity) for c in version.columns]
    return [version.identity, version.key, *columns]
