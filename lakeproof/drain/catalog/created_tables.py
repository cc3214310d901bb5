"""Finds the tables of a catalog reading that were created in the stream: new ones, and published from their creation on.

`lakeproof.postgres.catalog.origins` says what the catalog's lines prove; `lakeproof.lake.planning.entries` adds a
table like that to the lake without a copy; docs/decisions/0023-tables-created-in-the-stream.md says why that is enough.

Every row of such a table is in the stream, under its OID: its rule of publication existed, unaltered, before anybody had
written with the xid that created it; the rule has been the table's since then; and its rows are in the file that they were
written to. A table without this proof entered the publication like any other, and waits for a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from lakeproof.catalog.differences import TableCreated
from lakeproof.catalog.fingerprint import Fingerprint, TableFacts
from lakeproof.config.model import SourceConfig
from lakeproof.errors import ConfigError
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation, RelationColumn
from lakeproof.postgres.catalog.fingerprint import CatalogReading
from lakeproof.postgres.catalog.origins import TableOrigin, never_relabelled, read_origins
from lakeproof.postgres.catalog.relations import ReadingsAround, read_now, version_of
from lakeproof.postgres.connections.connect import Connection
from lakeproof.schema import Identity


def rules_in_force(previous: Fingerprint | None, rules: Mapping[str, int], reading: CatalogReading) -> dict[str, int]:
    """Return the reading's rules, each with the xid since which it is known; `rules` are those of `previous`."""
    kept = {} if previous is None else _unaltered(previous, rules, reading.fingerprint, reading.rules)
    return {entry: kept.get(entry, reading.horizon) for entry in reading.rules}


def created_in_stream(  # noqa: PLR0917  two readings, each with its rules
    conn: Connection,
    source: SourceConfig,
    previous: Fingerprint,
    rules: Mapping[str, int],
    now: Fingerprint,
    rules_now: Mapping[str, int],
) -> dict[Oid, TableCreated | None]:
    """Return the new tables of `now` that were created in the stream; runs under the snapshot of `now`.

    None for a table that has been published for all of its life, and whose rows need not be those that were sent. `rules`
    are those of `previous`, each with its xid, `rules_now` each with its publication. Raises as `source_errors`.
    """
    entered = now.tables.keys() - previous.tables.keys()
    standing = _unaltered(previous, rules, now, rules_now)
    # Few tables enter at a time, and nothing has to be read about those that somebody has named.
    possible = {oid for oid in entered if any(e.entry in standing for e in now.tables[oid].entries)}
    origins = read_origins(conn, possible)
    covered = {oid: origin for oid, origin in origins.items() if _is_covered(origin, now.tables[oid], standing, now)}
    proven = {oid: origin for oid, origin in covered.items() if _has_sent_rows(origin, now)}
    proven = _with_lasting_types(conn, proven, now)
    created: dict[Oid, TableCreated | None] = dict.fromkeys(covered)
    relations = {oid: _relation(now.tables[oid], now) for oid in proven}
    lines = read_now(conn, relations.values()) if relations else {}
    for oid, origin in proven.items():
        # A table that does not fit the configuration waits for a person, as its copy would.
        with suppress(ConfigError):
            version = version_of(source, relations[oid], lines[oid], ReadingsAround(after=now), strict=True)
            numbered = _is_numbered(origin, now.tables[oid], now)
            created[oid] = TableCreated(version, origin.named, origin.anchored, numbered)
    return created


def _unaltered(
    previous: Fingerprint, rules: Mapping[str, int], now: Fingerprint, rules_now: Mapping[str, int]
) -> dict[str, int]:
    """Return those of `rules` that still exist, of publications that nobody has altered."""
    same = {oid for oid, facts in now.publications.items() if previous.publications.get(oid) == facts}
    return {entry: rules[entry] for entry, publication in rules_now.items() if entry in rules and publication in same}


def _is_covered(origin: TableOrigin, table: TableFacts, standing: Mapping[str, int], now: Fingerprint) -> bool:
    """True if all that is published of the table was so from its creation on."""
    rules = {
        e for e in table.entries if e.entry in origin.entries and standing.get(e.entry, origin.xid + 1) <= origin.xid
    }
    sent = {operation for e in rules for operation in now.publications[e.publication].operations}
    return "i" in sent and sent == set(now.operations(table))


def _has_sent_rows(origin: TableOrigin, now: Fingerprint) -> bool:
    """True if a table that `_is_covered` has the rows that it was sent with, and under its own name."""
    # DETACH writes all columns' lines: below a published root its rows went under the root's name.
    return origin.own_file and (bool(origin.anchored) or not any(p.via_root for p in now.publications.values()))


def _with_lasting_types(
    conn: Connection, proven: Mapping[Oid, TableOrigin], now: Fingerprint
) -> dict[Oid, TableOrigin]:
    """Leave out tables with values of a type whose text may have changed since: the stream had the old text."""
    types = {oid: now.types_of(c.type_oid for c in now.sent(now.tables[oid])) for oid in proven}
    enums = {number for used in types.values() for number, facts in used.items() if facts.kind == "e"}
    lasting = never_relabelled(conn, enums)
    return {
        oid: origin
        for oid, origin in proven.items()
        if all(facts.kind != "c" and (facts.kind != "e" or n in lasting) for n, facts in types[oid].items())
    }


def _is_numbered(origin: TableOrigin, table: TableFacts, now: Fingerprint) -> bool:
    return not origin.has_dropped and len(now.sent(table)) == len(table.columns)


def _relation(table: TableFacts, now: Fingerprint) -> Relation:
    """Return the message that the stream would bring for this table."""
    key = table.key_numbers
    columns = tuple(RelationColumn(c.name, Oid(c.type_oid), c.typmod, c.attnum in key) for c in now.sent(table))
    return Relation(table.oid, table.table.schema, table.table.name, Identity(table.identity), columns)
