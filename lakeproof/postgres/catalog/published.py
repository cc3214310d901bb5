"""Reads what the source publishes and each table's schema: publications, columns, identities, leaves.

Whatever can't be replicated is judged in `checks/source.py`; types have their form in the lake by `lakeproof.values.types`.
All reads are ordinary MVCC queries, so under an imported snapshot they return the catalog as it was at that snapshot.

A source has one publication in its configuration, and sometimes a second one with the suffix `_inserts`, for tables without
identity (see `lakeproof.commands.publish`); `publications_of` returns those that exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg

from lakeproof.config.model import SourceConfig, TableConfig
from lakeproof.errors import ConfigError, DefiniteError, SourceError, TransientError
from lakeproof.events import listed
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.tables import ACTIONS, SENDS_GENERATED, Leaf, PublicationWay, PublishedTable
from lakeproof.postgres.connections.connect import Connection, Row, connect, one_snapshot, rows, source_errors
from lakeproof.schema import Column, Identity, LeftOutColumn, SchemaVersion
from lakeproof.values.catalog_kinds import CatalogType, make_column

INSERTS_SUFFIX = "_inserts"
_LOCKED_SHOWN = 5
# What a row filter is for: TRUNCATE has none.
_ROW_ACTIONS = ("insert", "update", "delete")
# What marks an identity's index in pg_index.
INDEX_FLAGS = {Identity.DEFAULT: "indisprimary", Identity.INDEX: "indisreplident"}


def publications_of(conn: Connection, source: SourceConfig) -> list[str]:
    """Return the source's existing publications, the main one first; empty if there is none. Raises as `source_errors`."""
    candidates = [source.publication, source.publication + INSERTS_SUFFIX]
    lines = rows(conn, queries.PUBLICATIONS, {"names": candidates}, about=f"publication {source.publication}")
    existing = {row["pubname"] for row in lines}
    return [name for name in candidates if name in existing]


def read_tables(
    conn: Connection,
    source: SourceConfig,
    only: Collection[TableName] | None = None,
    refused: dict[TableName, DefiniteError] | None = None,
) -> dict[TableName, PublishedTable]:
    """Return every published table (of `only`, if given), by name in order.

    Raises SourceError if no publication exists, else as `source_errors`. If two publications disagree about a table's
    columns, or the configuration does not fit a table, it raises SourceError or ConfigError, or puts that into `refused`.
    """
    names = publications_of(conn, source)
    if not names:
        raise SourceError(f"publication {source.publication}", "it does not exist", "run `lakeproof apply`")
    # A table may be dropped between two of these statements.
    with source_errors(f"publication {source.publication}"), _naming_lock_holders(source), one_snapshot(conn):
        published = rows(conn, queries.published(conn.info.server_version), {"names": names})
        if only is not None:
            published = [row for row in published if TableName(row["schema"], row["name"]) in only]
        oids = sorted({int(row["oid"]) for row in published})
        facts = _read_facts(conn, oids)
    entries = by_oid(published, "oid")
    return _published_tables({oid: entries[oid] for oid in oids}, facts, source, refused)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A table as it would be published: `columns` and `rows` (None: all), and the columns that the condition `reads`.

    Without `generated`, no generated column would be sent.
    """

    actions: Collection[str]
    columns: tuple[str, ...] | None = None
    rows: str | None = None
    reads: tuple[str, ...] = ()
    generated: bool = True


def as_if_published(
    conn: Connection,
    source: SourceConfig,
    candidates: Mapping[int, Candidate],
    refused: dict[TableName, DefiniteError],
) -> dict[TableName, PublishedTable]:
    """Return tables (by OID) as they would be published. Raises as `source_errors`; `refused` as in `read_tables`."""
    with source_errors("tables"), one_snapshot(conn):
        facts = _read_facts(conn, sorted(candidates))
    entries = {oid: [_entry(source, candidates[oid], facts.columns[oid])] for oid in sorted(candidates)}
    return _published_tables(entries, facts, source, refused)


def _entry(source: SourceConfig, candidate: Candidate, columns: Sequence[Row]) -> Row:
    """Return the line of a publication that would have the table."""
    listed = None if candidate.columns is None else list(candidate.columns)
    if listed is None and not candidate.generated:
        listed = [c["attname"] for c in columns if not c["attgenerated"]]
    return {
        "pubname": source.publication,
        "attnames": listed,
        "rowfilter": candidate.rows,
        "column_list": candidate.columns is not None,
        "filtered_by": candidate.reads,
        "sent_as": None,
        "apart": None,
        **{f"pub{action}": action in candidate.actions for action in ACTIONS},
    }


def with_sizes(conn: Connection, tables: Iterable[PublishedTable]) -> list[PublishedTable]:
    """Return the tables with the current number of pages of their leaves. Raises as `source_errors`."""
    listed = list(tables)
    oids = sorted({int(leaf.oid) for table in listed for leaf in table.leaves})
    sizes = rows(conn, queries.PAGES, {"oids": oids}, about="sizes of tables")
    pages = {int(row["oid"]): (int(row["pages"] or 0), int(row["toast_pages"] or 0)) for row in sizes}

    def sized(leaf: Leaf) -> Leaf:
        own, toast = pages.get(int(leaf.oid), (0, 0))
        return replace(leaf, pages=own, toast_pages=toast)

    return [replace(table, leaves=tuple(map(sized, table.leaves))) for table in listed]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Rows of the catalog by the table's OID, and types by their own."""

    relations: Mapping[int, Row]
    columns: Mapping[int, list[Row]]
    indexes: Mapping[int, list[Row]]
    leaves: Mapping[int, list[Row]]
    types: Mapping[int, CatalogType]
    # Before 18 pg_publication_tables lists generated columns (if there is no column list), but the stream has none.
    sends_generated: bool

    def is_sent(self, column: Row, listed: Collection[str] | None) -> bool:
        """True if the stream has this column of a table whose publication lists `listed`, or (None) all that it can send."""
        if column["attgenerated"] and not self.sends_generated:
            return False
        return column["attgenerated"] != "v" if listed is None else column["attname"] in listed

    def identity_index(self, oid: int, identity: Identity) -> list[str]:
        """Return the names of the identity index's columns in the index's order; empty if there is no index."""
        flag = INDEX_FLAGS.get(identity)
        indexes = [row["columns"] for row in self.indexes[oid] if flag is not None and row[flag]]
        return list(indexes[0]) if indexes else []


def _read_facts(conn: Connection, oids: Sequence[int]) -> _Facts:
    if not oids:
        return _Facts({}, defaultdict(list), defaultdict(list), defaultdict(list), {}, sends_generated=False)
    values = {"oids": list(oids)}
    columns = rows(conn, queries.COLUMNS, values)
    type_oids = sorted({int(row["atttypid"]) for row in columns})
    leaves = rows(conn, queries.LEAVES, values)
    with_rows = sorted({*oids, *(int(row["oid"]) for row in leaves)})
    return _Facts(
        relations={int(row["oid"]): row for row in rows(conn, queries.RELATIONS, values)},
        columns=by_oid(columns, "attrelid"),
        indexes=by_oid(rows(conn, queries.INDEXES, {"oids": with_rows}), "indrelid"),
        leaves=by_oid(leaves, "root"),
        types=read_types(conn, type_oids),
        sends_generated=conn.info.server_version >= SENDS_GENERATED,
    )


def by_oid(lines: Iterable[Row], name: str) -> dict[int, list[Row]]:
    """Return the rows of the catalog by the OID in their column `name`; none for any other."""
    result: dict[int, list[Row]] = defaultdict(list)
    for row in lines:
        result[int(row[name])].append(row)
    return result


def read_types(conn: Connection, oids: Collection[int]) -> dict[int, CatalogType]:
    """Return types by their OID, an array's with its element; an OID that is no type (any more) is left out."""
    if not oids:
        return {}
    types = rows(conn, queries.TYPES, {"oids": sorted(oids)})
    element_oids = sorted({int(row["elem_oid"]) for row in types} - {0})
    # One step down is enough: an array's element is no array, and a domain over an array stays exact text.
    below = rows(conn, queries.TYPES, {"oids": element_oids}) if element_oids else []
    elements = {int(row["oid"]): _type(row, {}) for row in below}
    return {int(row["oid"]): _type(row, elements) for row in types}


def _type(row: Row, elements: Mapping[int, CatalogType]) -> CatalogType:
    return CatalogType(
        oid=Oid(int(row["oid"])),
        schema=row["schema"],
        name=row["name"],
        typtype=row["typtype"],
        base_oid=Oid(int(row["base_oid"])),
        base_typmod=int(row["base_typmod"]),
        base_typtype=row["base_typtype"],
        element=elements.get(int(row["elem_oid"])),
    )


def _published_tables(
    entries: Mapping[int, Sequence[Row]],
    facts: _Facts,
    source: SourceConfig,
    refused: dict[TableName, DefiniteError] | None,
) -> dict[TableName, PublishedTable]:
    tables = []
    for oid, published in entries.items():
        try:
            tables.append(_published_table(oid, published, facts, source))
        except DefiniteError as error:
            if refused is None:
                raise
            relation = facts.relations[oid]
            refused[TableName(relation["schema"], relation["name"])] = error
    return {table.table: table for table in sorted(tables, key=lambda t: t.table)}


def _published_table(oid: int, entries: Sequence[Row], facts: _Facts, source: SourceConfig) -> PublishedTable:
    relation = facts.relations[oid]
    table = TableName(relation["schema"], relation["name"])
    listed = {tuple(sorted(e["attnames"])) if e["attnames"] is not None else None for e in entries}
    if len(listed) > 1:
        remedy = "give them the same column list, or publish the table once"
        raise SourceError(f"table {table}", "its publications list different columns", remedy)
    _require_one_form(table, entries)
    row_filter = _row_filter(table, entries)
    names = listed.pop()
    identity = Identity(relation["relreplident"])
    index = facts.identity_index(oid, identity)
    config = source.table_config(table)
    sent = [row for row in facts.columns[oid] if facts.is_sent(row, names)]
    sent_names = {str(row["attname"]) for row in sent}
    with configured(table):
        columns = [
            make_column(
                row["attname"],
                facts.types[int(row["atttypid"])],
                int(row["atttypmod"]),
                attnum=int(row["attnum"]),
                identity=row["attname"] in index,
                table=config,
            )
            for row in sent
        ]
    version = SchemaVersion(
        table, Oid(oid), identity, tuple(columns), identifying_columns(identity, index, columns, config, table)
    )
    changing = [e for e in entries if e["pubupdate"] or e["pubdelete"]]
    listed_columns = any(e["column_list"] for e in changing)
    unsent = _uncovered(identity, index, facts.columns[oid], sent_names, facts)
    # Before 18 the server asks for the identity's columns in a column list alone, and sends no generated ones.
    unasked = bool(changing) and not (listed_columns or facts.sends_generated)
    return PublishedTable(
        version=version,
        row_filter=row_filter,
        actions=frozenset(a for a in ACTIONS for e in entries if e[f"pub{a}"]),
        leaves=tuple(_leaf(row, facts) for row in facts.leaves[oid] if row["sent"]),
        outside={
            TableName(row["schema"], row["name"]): "a foreign table" if row["relkind"] == "f" else "unlogged"
            for row in facts.leaves[oid]
            if not row["sent"] and int(row["oid"]) != oid
        },
        partitioned=relation["relkind"] == "p",
        publications=tuple(e["pubname"] for e in entries),
        uncovered=() if unasked else unsent,
        filtered_beyond=_filtered_beyond(identity, index, changing),
        column_list=listed_columns,
        left_out=_left_out(facts.columns[oid], sent_names),
        unsent_identity=unsent if unasked else (),
        ways={str(e["pubname"]): _way(e) for e in changing if "by_name" in e},
    )


def _require_one_form(table: TableName, entries: Iterable[Row]) -> None:
    """Raise SourceError if one publication sends rows as a root's and another one by their partition's name.

    The server decides for both together: all operations of both come under the root's name.
    """
    remedy = "take one of the two out, or give both publications the same `publish_via_partition_root`"
    for entry in entries:
        if entry["sent_as"] is not None:
            root = TableName(*entry["sent_as"])
            reason = f"one publication sends its rows as those of {root}, another one sends them by its own name"
            raise SourceError(f"table {table}", reason, remedy)
        if entry["apart"] is not None:
            partition = TableName(*entry["apart"])
            reason = f"one publication sends all rows by its name, and another one its partition {partition} by name"
            raise SourceError(f"table {table}", reason, remedy)


def _row_filter(table: TableName, entries: Sequence[Row]) -> str | None:
    """Return the condition of the rows that are sent, None for all.

    pgoutput sends a change if any of the publications of its operation includes the row. Raises SourceError if these differ.
    """
    conditions = set()
    for action in _ROW_ACTIONS:
        filters = dict.fromkeys(e["rowfilter"] for e in entries if e[f"pub{action}"])
        if filters:
            conditions.add(None if None in filters else " OR ".join(f"({f})" for f in filters))
    if len(conditions) > 1:
        reason = "its publications filter the rows of one operation in another way than those of another one"
        raise SourceError(f"table {table}", reason, "give it the same row filter in each, or publish the table once")
    return conditions.pop() if conditions else None


def _left_out(columns: Iterable[Row], sent: Collection[str]) -> tuple[LeftOutColumn, ...]:
    """Return the catalog's columns of a table that are not `sent`."""
    kinds = {"s": "stored", "v": "virtual"}
    return tuple(
        LeftOutColumn(str(row["attname"]), kinds.get(row["attgenerated"], ""))
        for row in columns
        if row["attname"] not in sent
    )


def _way(entry: Row) -> PublicationWay:
    """Return how a publication comes to have the table; with its schema it has it whatever its own line says."""
    if entry["puballtables"]:
        return PublicationWay.ALL
    if entry["by_schema"]:
        return PublicationWay.SCHEMA
    return PublicationWay.LINE if entry["by_name"] else PublicationWay.ROOT


def _uncovered(
    identity: Identity, index: Sequence[str], columns: Sequence[Row], sent: set[str], facts: _Facts
) -> tuple[str, ...]:
    """Return the identity's columns that the stream does not have. Before 18 FULL has no generated columns."""
    if identity is not Identity.FULL:
        return tuple(name for name in index if name not in sent)
    needed = [c["attname"] for c in columns if not c["attgenerated"] or facts.sends_generated]
    return tuple(name for name in needed if name not in sent)


def _filtered_beyond(identity: Identity, index: Sequence[str], entries: Iterable[Row]) -> tuple[str, ...]:
    """Return the columns that the filters read beyond those of the identity."""
    if identity is Identity.FULL:
        return ()
    read = {str(name) for e in entries for name in e["filtered_by"]}
    return tuple(sorted(read - set(index)))


def _leaf(row: Row, facts: _Facts) -> Leaf:
    oid, identity = int(row["oid"]), Identity(row["relreplident"])
    return Leaf(
        oid=Oid(oid),
        table=TableName(row["schema"], row["name"]),
        identity=identity,
        pages=int(row["pages"]),
        heap=bool(row["heap"]),
        identity_columns=tuple(facts.identity_index(oid, identity)),
    )


@contextmanager
def configured(table: TableName) -> Iterator[None]:
    """Raise a ValueError inside as the configuration's mistake about `table`."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"table {table}", str(error), "correct the table's section in the configuration") from None


def identifying_columns(
    identity: Identity, index: Sequence[str], columns: Sequence[Column], config: TableConfig, table: TableName
) -> tuple[str, ...]:
    """Return the columns that identify rows: the whole identity index, the configured ones under FULL, or none."""
    names = {c.name for c in columns}
    if identity is Identity.FULL:
        missing = [name for name in config.key if name not in names]
        if missing:
            reason = f"its configured key has columns that are not published: {', '.join(missing)}"
            raise ConfigError(f"table {table}", reason, "correct the table's key in the configuration")
        return config.key
    # Part of a key identifies nothing: a column list that leaves some of the key out makes a bag.
    return tuple(index) if index and names.issuperset(index) else ()


@contextmanager
def _naming_lock_holders(source: SourceConfig) -> Iterator[None]:
    """Name the locked tables if a query inside times out: the server opens a publication's tables without naming any."""
    try:
        yield
    except psycopg.errors.LockNotAvailable:
        thing = f"publication {source.publication}"
        with connect(source.dsn, "lakeproof locks") as conn, source_errors(thing):
            locked = rows(conn, queries.LOCKED)
        holders = listed((f"{TableName(r['schema'], r['name'])} (process {r['pid']})" for r in locked), _LOCKED_SHOWN)
        detail = f": locked are {holders}" if holders else ", and nothing is locked any more"
        reason = f"a lock on one of its tables could not be taken in time{detail}"
        raise TransientError(thing, reason, "let the ALTER or LOCK finish, then try again") from None
