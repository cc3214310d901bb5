"""What the source publishes, and the shape of each table: publications, columns, identities, leaves.

Whether that can be replicated is judged in `lakeproof.postgres.check_source`; what a type becomes in the lake in
`lakeproof.values.types`. All reads are ordinary MVCC queries, so that under an imported snapshot they give the
catalog as it was at that snapshot.

A source has one publication in its configuration, and sometimes a second one beside it, named after it with
`_inserts` at its end, for tables without identity (see `lakeproof.commands.publish`); `publications_of` finds which exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from lakeproof.config.model import SourceConfig, TableConfig
from lakeproof.errors import ConfigError, DefiniteError, SourceError
from lakeproof.names import Oid, TableName
from lakeproof.postgres import catalog_queries as queries
from lakeproof.postgres.catalog_locks import locks_named
from lakeproof.postgres.catalog_unpublished import SENDS_GENERATED, left_out
from lakeproof.postgres.connection import Connection, one_snapshot, rows, source_errors
from lakeproof.schema import Column, Identity, LeftOutColumn, SchemaVersion, identity_fits
from lakeproof.values.types import CatalogType, make_column

INSERTS_SUFFIX = "_inserts"
ACTIONS = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One relation with rows of its own: the table itself, or a partition.

    `relfilenode` is the file's number as the reading transaction's snapshot sees it; `pages` the catalog's estimate of its
    blocks (as of the last VACUUM or ANALYZE; 0 for a new table), or their number where `measured` gave it, with
    `toast_pages` for what is stored out of line. What is kept by
    another access method than `heap` may have no pages to be told apart by. `identity_columns` are those of its identity's
    index.
    """

    oid: Oid
    table: TableName
    identity: Identity
    relfilenode: int
    pages: int
    heap: bool = True
    toast_pages: int = 0
    identity_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as its publications have it.

    `row_filter` is SQL over its columns, None where all rows go; `actions` are some of insert, update, delete, truncate;
    `leaves` hold its rows (of a partitioned root: the partitions), `outside` are partitions that send nothing, with what
    they are; `left_out` are its columns that are not sent. Three are about publications of its updates or deletes:
    `uncovered` are columns of its identity that are not published, `filtered_beyond` those that a filter reads though they
    are not of its identity, `column_list` says whether there is one.
    """

    version: SchemaVersion
    row_filter: str | None
    actions: frozenset[str]
    leaves: tuple[Leaf, ...]
    partitioned: bool
    unlogged: bool
    publications: tuple[str, ...]
    uncovered: tuple[str, ...] = ()
    filtered_beyond: tuple[str, ...] = ()
    column_list: bool = False
    outside: Mapping[TableName, str] = field(default_factory=dict)
    left_out: tuple[LeftOutColumn, ...] = ()

    @property
    def table(self) -> TableName:
        """Its name."""
        return self.version.table

    @property
    def pages(self) -> int:
        """Blocks of all leaves together: a hint, not a bound."""
        return sum(leaf.pages for leaf in self.leaves)

    @property
    def kept(self) -> str:
        """What the lake has of it: `keyed` or `bag` (current equals the source), `history only`, or it is `refused`."""
        if "insert" not in self.actions or not self.version.columns or self.changes_refused or self.unfit_leaves:
            return "refused"
        if self.actions != frozenset(ACTIONS):
            return "history only"
        return "keyed" if self.version.key else "bag"

    @property
    def changes_refused(self) -> bool:
        """Whether PostgreSQL refuses the updates and deletes that the application makes in it, since it is published so."""
        if not self.actions & {"update", "delete"}:
            return False
        # FULL is every column, and PostgreSQL takes no list for that, not even of all of them.
        listed = self.column_list and self.version.identity is Identity.FULL
        return listed or bool(self.uncovered or self.filtered_beyond) or not self.has_identity

    @property
    def unfit_leaves(self) -> tuple[Leaf, ...]:
        """The partitions whose updates and deletes, published under the table's name, would not say which row they mean."""
        if not self.partitioned or self.changes_refused or not self.actions & {"update", "delete"}:
            return ()
        own = [c.name for c in self.version.columns if c.identity]
        return tuple(
            leaf
            for leaf in self.leaves
            if not identity_fits(self.version.identity, own, leaf.identity, leaf.identity_columns)
        )

    @property
    def has_identity(self) -> bool:
        """Whether the source can tell which row an update or a delete means."""
        return self.version.identity is Identity.FULL or any(c.identity for c in self.version.columns)


def publications_of(conn: Connection, source: SourceConfig) -> list[str]:
    """The source's publications that exist, the main one first; empty where none does. Raises as `source_errors`."""
    wanted = [source.publication, source.publication + INSERTS_SUFFIX]
    with source_errors(f"publication {source.publication}"):
        found = {row["pubname"] for row in rows(conn, queries.PUBLICATIONS, {"names": wanted})}
    return [name for name in wanted if name in found]


def read_tables(
    conn: Connection,
    source: SourceConfig,
    only: Collection[TableName] | None = None,
    refused: dict[TableName, DefiniteError] | None = None,
) -> dict[TableName, PublishedTable]:
    """Every published table (of `only`, where given), by name in order.

    Raises SourceError where no publication exists, else as `source_errors`; and where two publications disagree about a
    table's columns, or the configuration does not fit a table, SourceError or ConfigError, or puts it into `refused`.
    """
    names = publications_of(conn, source)
    if not names:
        raise SourceError(f"publication {source.publication}", "it does not exist", "run `lakeproof apply`")
    # A table may be dropped between two of these statements.
    with source_errors(f"publication {source.publication}"), locks_named(source), one_snapshot(conn):
        published = rows(conn, queries.published(conn.info.server_version), {"names": names})
        if only is not None:
            published = [row for row in published if TableName(row["schema"], row["name"]) in only]
        oids = sorted({int(row["oid"]) for row in published})
        facts = _read_facts(conn, oids)
    entries: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in published:
        entries[int(row["oid"])].append(row)
    return _published_tables({oid: entries[oid] for oid in oids}, facts, source, refused)


def as_if_published(
    conn: Connection,
    source: SourceConfig,
    actions: Mapping[int, Collection[str]],
    refused: dict[TableName, DefiniteError],
    without_generated: Collection[int] = (),
) -> dict[TableName, PublishedTable]:
    """Tables that are not published (by OID) as they would be, with these actions, all columns and all rows.

    Of some no generated column would be sent. Raises as `source_errors`; `refused` as in `read_tables`.
    """
    with source_errors("tables"), one_snapshot(conn):
        facts = _read_facts(conn, sorted(actions))
    whole: dict[str, Any] = {
        "pubname": source.publication,
        "attnames": None,
        "rowfilter": None,
        "column_list": False,
        "filtered_by": (),
    }
    entries = {o: [whole | {f"pub{a}": a in actions[o] for a in ACTIONS}] for o in sorted(actions)}
    for oid in without_generated:
        entries[oid][0]["attnames"] = [c["attname"] for c in facts.columns[oid] if not c["attgenerated"]]
    return _published_tables(entries, facts, source, refused)


def measured(conn: Connection, tables: Iterable[PublishedTable]) -> list[PublishedTable]:
    """The tables with the number of pages that their leaves have now. Raises as `source_errors`."""
    given = list(tables)
    oids = sorted({int(leaf.oid) for table in given for leaf in table.leaves})
    with source_errors("sizes of tables"):
        found = rows(conn, queries.PAGES, {"oids": oids})
    pages = {int(row["oid"]): (int(row["pages"] or 0), int(row["toast_pages"] or 0)) for row in found}

    def sized(leaf: Leaf) -> Leaf:
        own, toast = pages.get(int(leaf.oid), (0, 0))
        return replace(leaf, pages=own, toast_pages=toast)

    return [replace(table, leaves=tuple(map(sized, table.leaves))) for table in given]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Rows of the catalog by the table's OID, types by their own."""

    relations: Mapping[int, dict[str, Any]]
    columns: Mapping[int, list[dict[str, Any]]]
    indexes: Mapping[int, list[dict[str, Any]]]
    leaves: Mapping[int, list[dict[str, Any]]]
    types: Mapping[int, CatalogType]
    # Before 18 pg_publication_tables lists generated columns (where there is no column list), but the stream has none.
    sends_generated: bool

    def is_sent(self, column: Mapping[str, Any], listed: Collection[str] | None) -> bool:
        """Whether the stream has this column of a table whose publication lists these, or (None) all that it can send."""
        if column["attgenerated"] and not self.sends_generated:
            return False
        return column["attgenerated"] != "v" if listed is None else column["attname"] in listed

    def identity_index(self, oid: int, identity: Identity) -> list[str]:
        """The names of the identity index's columns in the index's order; empty where there is none."""
        flag = {Identity.DEFAULT: "indisprimary", Identity.INDEX: "indisreplident"}.get(identity)
        found = [row["columns"] for row in self.indexes[oid] if flag is not None and row[flag]]
        return list(found[0]) if found else []


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
        columns=_by(columns, "attrelid"),
        indexes=_by(rows(conn, queries.INDEXES, {"oids": with_rows}), "indrelid"),
        leaves=_by(leaves, "root"),
        types=read_types(conn, type_oids),
        sends_generated=conn.info.server_version >= SENDS_GENERATED,
    )


def _by(found: Iterable[dict[str, Any]], name: str) -> dict[int, list[dict[str, Any]]]:
    result: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        result[int(row[name])].append(row)
    return result


def read_types(conn: Connection, oids: Collection[int]) -> dict[int, CatalogType]:
    """Types by their OID, an array's with its element; an OID that is no type (any more) is left out."""
    if not oids:
        return {}
    found = rows(conn, queries.TYPES, {"oids": sorted(oids)})
    wanted = sorted({int(row["elem_oid"]) for row in found} - {0})
    # One step down is enough: an array's element is no array, and one that is a domain over an array stays exact text.
    below = rows(conn, queries.TYPES, {"oids": wanted}) if wanted else []
    elements = {int(row["oid"]): _type(row, {}) for row in below}
    return {int(row["oid"]): _type(row, elements) for row in found}


def _type(row: dict[str, Any], elements: Mapping[int, CatalogType]) -> CatalogType:
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
    entries: Mapping[int, Sequence[dict[str, Any]]],
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


def _published_table(
    oid: int, entries: Sequence[dict[str, Any]], facts: _Facts, source: SourceConfig
) -> PublishedTable:
    relation = facts.relations[oid]
    table = TableName(relation["schema"], relation["name"])
    listed = {tuple(sorted(e["attnames"])) if e["attnames"] is not None else None for e in entries}
    if len(listed) > 1:
        remedy = "give them the same column list, or publish the table once"
        raise SourceError(f"table {table}", "its publications list different columns", remedy)
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
    version = SchemaVersion(table, Oid(oid), identity, tuple(columns), key_of(identity, index, columns, config, table))
    filters = [e["rowfilter"] for e in entries]
    changing = [e for e in entries if e["pubupdate"] or e["pubdelete"]]
    return PublishedTable(
        version=version,
        # pgoutput sends a row that any of the publications wants.
        row_filter=None if None in filters else " OR ".join(f"({f})" for f in dict.fromkeys(filters)),
        actions=frozenset(a for a in ACTIONS for e in entries if e[f"pub{a}"]),
        leaves=tuple(_leaf(row, facts) for row in facts.leaves[oid] if row["sent"]),
        outside={
            TableName(row["schema"], row["name"]): "a foreign table" if row["relkind"] == "f" else "unlogged"
            for row in facts.leaves[oid]
            if not row["sent"] and int(row["oid"]) != oid
        },
        partitioned=relation["relkind"] == "p",
        unlogged=relation["relpersistence"] != "p",
        publications=tuple(e["pubname"] for e in entries),
        uncovered=_uncovered(identity, index, facts.columns[oid], sent_names, facts),
        filtered_beyond=_filtered_beyond(identity, index, changing),
        column_list=any(e["column_list"] for e in changing),
        left_out=left_out(facts.columns[oid], sent_names),
    )


def _uncovered(
    identity: Identity, index: Sequence[str], columns: Sequence[Mapping[str, Any]], sent: set[str], facts: _Facts
) -> tuple[str, ...]:
    """The identity's columns that the stream has not. Before 18 a generated column is not one of FULL's."""
    if identity is not Identity.FULL:
        return tuple(name for name in index if name not in sent)
    needed = [c["attname"] for c in columns if not c["attgenerated"] or facts.sends_generated]
    return tuple(name for name in needed if name not in sent)


def _filtered_beyond(identity: Identity, index: Sequence[str], entries: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns that their filters read and that are not of the identity."""
    if identity is Identity.FULL:
        return ()
    read = {str(name) for e in entries for name in e["filtered_by"]}
    return tuple(sorted(read - set(index)))


def _leaf(row: dict[str, Any], facts: _Facts) -> Leaf:
    oid, identity = int(row["oid"]), Identity(row["relreplident"])
    return Leaf(
        oid=Oid(oid),
        table=TableName(row["schema"], row["name"]),
        identity=identity,
        relfilenode=int(row["relfilenode"]),
        pages=int(row["pages"]),
        heap=bool(row["heap"]),
        identity_columns=tuple(facts.identity_index(oid, identity)),
    )


@contextmanager
def configured(table: TableName) -> Iterator[None]:
    """A ValueError inside is the configuration's mistake about `table`."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"table {table}", str(error), "correct the table's section in the configuration") from None


def key_of(
    identity: Identity, index: Sequence[str], columns: Sequence[Column], config: TableConfig, table: TableName
) -> tuple[str, ...]:
    """What tells rows apart: the whole identity index, the configured columns under FULL, or nothing."""
    names = {c.name for c in columns}
    if identity is Identity.FULL:
        missing = [name for name in config.key if name not in names]
        if missing:
            reason = f"its configured key has columns that are not published: {', '.join(missing)}"
            raise ConfigError(f"table {table}", reason, "correct the table's key in the configuration")
        return config.key
    # Part of a key tells nothing apart: a column list that leaves some of it out makes a bag.
    return tuple(index) if index and names.issuperset(index) else ()
