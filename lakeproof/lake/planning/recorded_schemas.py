"""The schemas that a table has by the catalog's records, though no row of them has come.

A schema that a row brings is for `schema_changes`; a change that makes a table suspect in
`catalog_drift`.

A record of the catalog has the schema of each table that differs. Every commit in it ends at or before its `upper_lsn`. So
at that position the table has the schema, and a cycle ends there to give it to the lake, unless a row has brought it before.
A row that came while the catalog was read may have brought a newer one: then the record is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakeproof.catalog.differences import Consequence
from lakeproof.lake.planning.schema_change import taken_in
from lakeproof.lake.planning.schema_changes import SchemaDecision, decide
from lakeproof.lake.records.documents import CutTable
from lakeproof.landing.catalog_history import catalog_manifests
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import FinishedCopy


def decide_recorded_changes(
    chain: Chain, start: Lsn, tables: Mapping[TableName, CutTable], entering: Mapping[TableName, FinishedCopy]
) -> tuple[SchemaDecision, list[Lsn]]:
    """Decide on each table that has another schema by a record noticed at `start`.

    `tables` are in the lake, at `start`, and not held; `entering` may come into it with this cycle. The positions are where
    the range must end for later records: the cycle after that one decides.
    """
    decision, bounds = SchemaDecision(), []
    newest: dict[TableName, tuple[Manifest, SchemaVersion]] = {}
    for manifest, version in _schemas(chain, start):
        copied = entering.get(version.table)
        if copied is not None and _noticed(manifest) >= copied.consistent_point:
            if copied.table.version.oid == version.oid and not _same(copied.table.version, version):
                bounds.append(_noticed(manifest))
            continue
        cut_table = tables.get(version.table)
        if cut_table is None or cut_table.version.oid != version.oid:
            continue
        if _noticed(manifest) == start:
            newest[version.table] = manifest, version
        elif not _same(cut_table.version, version):
            bounds.append(_noticed(manifest))
    for table, (manifest, version) in newest.items():
        cut_table = tables[table]
        if _same(cut_table.version, version) or cut_table.snapshot_lsn >= start:
            continue
        if not _brought_meanwhile(chain, manifest, cut_table):
            decide(chain, cut_table, [version], start, decision, mixed=False)
    return decision, bounds


def newer_recorded(chain: Chain, version: SchemaVersion, span: tuple[Lsn, Lsn]) -> SchemaVersion | None:
    """Return another schema that a table has by a record noticed inside of `span`; None if there is none."""
    after, before = span
    newest = None
    for manifest, recorded in _schemas(chain, after):
        if after < _noticed(manifest) < before and (recorded.table, recorded.oid) == (version.table, version.oid):
            newest = recorded
    return None if newest is None or _same(version, newest) else newest


def _schemas(chain: Chain, start: Lsn) -> Iterator[tuple[Manifest, SchemaVersion]]:
    """Yield the schemas in the records noticed at or after `start`, of tables of which nothing else differs."""
    for manifest in catalog_manifests(chain, start):
        for change in () if manifest.catalog is None else manifest.catalog.changes:
            if change.version is not None and change.consequence is Consequence.APPLY:
                yield manifest, change.version


def _noticed(manifest: Manifest) -> Lsn:
    return Lsn.ZERO if manifest.catalog is None else manifest.catalog.upper_lsn


def _brought_meanwhile(chain: Chain, manifest: Manifest, cut_table: CutTable) -> bool:
    """True if a row brought the lake's schema after the reading had begun: it may be newer than the record's."""
    lower, upper = manifest.catalog_lsn or Lsn.ZERO, _noticed(manifest)
    if lower >= upper:
        return False
    return any(
        lower < entry.from_lsn <= upper and taken_in(entry.version).id == cut_table.version.id
        for between in chain.between(max(lower, chain.kept_from), upper)
        for entry in between.schemas
    )


def _same(a: SchemaVersion, b: SchemaVersion) -> bool:
    """True if the catalog says the same of both; the configurations they were made by may differ."""
    return _facts(a) == _facts(b)


def _facts(version: SchemaVersion) -> list[Any]:
    columns = [(c.attnum, c.name, c.type_oid, c.typmod, c.identity) for c in version.columns]
    return [version.identity, version.key, *columns]
