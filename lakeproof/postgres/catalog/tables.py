"""A published table as a value: its schema version, its leaves, what its publications send of it, and where that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from psycopg.sql import SQL, Composed, Identifier

from lakeproof.names import Oid, TableName
from lakeproof.schema import Identity, LeftOutColumn, SchemaVersion, identity_fits

ACTIONS = ("insert", "update", "delete", "truncate")
# From this version on a publication can send stored generated columns; virtual ones it never can.
SENDS_GENERATED = 180000


class PublicationWay(Enum):
    """The ways of a publication to have a table: by a line of its own, or with all tables, its schema or its root."""

    LINE = "line"
    ALL = "all"
    SCHEMA = "schema"
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One relation with rows of its own: the table itself, or a partition.

    `pages` is the catalog's estimate of its blocks (as of the last VACUUM or ANALYZE; 0 for a new table), or their number
    after `with_sizes`, with `toast_pages` for values stored out of line. A relation of another access method than `heap`
    may have no pages to cut it by. `identity_columns` are those of its identity's index.
    """

    oid: Oid
    table: TableName
    identity: Identity
    pages: int
    heap: bool = True
    toast_pages: int = 0
    identity_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as its publications have it.

    `row_filter` is SQL over its columns, None if all rows are sent; `actions` are some of insert, update, delete, truncate;
    `leaves` hold its rows (of a partitioned root: the partitions); `outside` are partitions that send nothing, with their
    kind; `left_out` are its columns that are not sent. `unsent_identity` are columns of its identity that are not sent,
    though the server takes its updates and deletes. The other fields are about publications of these: `uncovered` are
    unpublished columns of its identity, `filtered_beyond` are columns that a filter reads beyond its identity,
    `column_list` is true if there is one, `ways` are the publications with how each has the table (none: it is about to
    be published by name).
    """

    version: SchemaVersion
    row_filter: str | None
    actions: frozenset[str]
    leaves: tuple[Leaf, ...]
    partitioned: bool
    publications: tuple[str, ...]
    uncovered: tuple[str, ...] = ()
    filtered_beyond: tuple[str, ...] = ()
    column_list: bool = False
    outside: Mapping[TableName, str] = field(default_factory=dict)
    left_out: tuple[LeftOutColumn, ...] = ()
    unsent_identity: tuple[str, ...] = ()
    ways: Mapping[str, PublicationWay] = field(default_factory=dict)

    @property
    def table(self) -> TableName:
        return self.version.table

    @property
    def pages(self) -> int:
        """Blocks of all leaves together: a hint, not a bound."""
        return sum(leaf.pages for leaf in self.leaves)

    @property
    def kept(self) -> str:
        """Its state in the lake: `keyed` or `bag` (current equals the source), `history only`, or `refused`."""
        named = self.changes_refused and not self.only_inserted
        unidentified = self.unsent_identity or self.keyed_leaves or self.unfit_leaves
        if "insert" not in self.actions or not self.version.columns or named or unidentified:
            return "refused"
        if self.actions != frozenset(ACTIONS):
            return "history only"
        return "keyed" if self.version.key else "bag"

    @property
    def changes_refused(self) -> bool:
        """True if PostgreSQL refuses the application's updates and deletes in it because of its publication."""
        if not self.actions & {"update", "delete"} or self.unsent_identity or self.keyed_leaves:
            return False
        # FULL is every column; PostgreSQL allows no list for it, not even of all columns.
        listed = self.column_list and self.version.identity is Identity.FULL
        return listed or bool(self.uncovered or self.filtered_beyond) or not self.has_identity

    @property
    def only_inserted(self) -> bool:
        """True if its updates and deletes are refused, and its publication has it with others and can't leave it out.

        Then its rows are a bag of what was inserted since the last TRUNCATE, in the source as in the lake.
        """
        return self.changes_refused and bool(self.ways) and PublicationWay.LINE not in self.ways.values()

    @property
    def keyed_leaves(self) -> tuple[Leaf, ...]:
        """The partitions with an identity below a root without one: their changes come, and nothing says of which row."""
        return self.identified_leaves if not self.has_identity and self.actions & {"update", "delete"} else ()

    @property
    def identified_leaves(self) -> tuple[Leaf, ...]:
        leaves = self.leaves if self.partitioned else ()
        return tuple(leaf for leaf in leaves if leaf.identity is Identity.FULL or leaf.identity_columns)

    @property
    def unfit_leaves(self) -> tuple[Leaf, ...]:
        """The partitions whose updates and deletes, published under the table's name, would not identify their row."""
        refused = self.changes_refused or self.unsent_identity or self.keyed_leaves
        if not self.partitioned or refused or not self.actions & {"update", "delete"}:
            return ()
        own = [c.name for c in self.version.columns if c.identity]
        return tuple(
            leaf
            for leaf in self.leaves
            if not identity_fits(self.version.identity, own, leaf.identity, leaf.identity_columns)
        )

    @property
    def has_identity(self) -> bool:
        """True if the source can identify the row of an update or a delete."""
        return self.version.identity is Identity.FULL or any(c.identity for c in self.version.columns)


def sent_rows(table: PublishedTable) -> Composed:
    """Return the item of FROM that has the rows that copies and the stream have, with the published columns by name.

    A table's own rows are those without its inheritance children's; a partitioned root's are those of its partitions. A
    partition that sends nothing (`PublishedTable.outside`) is not read: its rows are in the source alone.
    """
    name = identifier(table.table)
    if table.partitioned and not table.outside:
        return SQL("{}").format(name)
    if not table.partitioned or not table.leaves:
        return SQL("ONLY {}").format(name)
    columns = SQL(", ").join(Identifier(column.name) for column in table.version.columns)
    parts = [SQL("SELECT {} FROM ONLY {}").format(columns, identifier(leaf.table)) for leaf in table.leaves]
    return SQL("({}) AS {}").format(SQL(" UNION ALL ").join(parts), Identifier("lp_sent"))


def identifier(table: TableName) -> Identifier:
    """Return a table's name for a statement."""
    return Identifier(table.schema, table.name)
