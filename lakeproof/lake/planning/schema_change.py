"""Two schemas of a table compared: which columns carry on in the lake, and whether the change is exact in place.

Nothing is written here: `schema_changes` decides when a change is made, `lakeproof.lake.cycle.schemas.commits` makes it.

A column is its attribute number within its table (OID), so a rename is a new name and a name used again is another column.
Between two tables of one name (dropped and made again) columns are matched by name and type. A column that does not carry on
is put out of the way and begins anew with nulls: right for a table that a snapshot then corrects, and in place only if
`why_not_in_place` says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from lakeproof.landing.segments.manifest import Manifest, SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.values.exact_kinds import FIXED_SIZE_KINDS, WHOLE_KINDS, needs_key_text
from lakeproof.values.types import ARRAY, EXACT_TEXT, precision_scale, spark_type

# The value is the same number; PostgreSQL's texts differ for floats only.
_WIDER = frozenset({("int2", "int4"), ("int2", "int8"), ("int4", "int8"), ("float4", "float8")})
_CHARACTERS = frozenset({25, 1043})


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """Two schemas of a table: `carried` are (old, new) columns, the others are `dropped` and `added`."""

    old: SchemaVersion
    new: SchemaVersion
    carried: tuple[tuple[Column, Column], ...]
    dropped: tuple[Column, ...]
    added: tuple[Column, ...]

    @property
    def same_forms(self) -> bool:
        """True if every row's exact forms are as before, so that its digest is."""
        return not self.dropped and not self.added and all(_same_form(a, b) for a, b in self.carried)

    @property
    def same_key(self) -> bool:
        """True if the key has the same columns in the same order."""
        names = {a.name: b.name for a, b in self.carried}
        return tuple(names.get(k) for k in self.old.key) == self.new.key

    @property
    def same_rows_meant(self) -> bool:
        """True if a change says in the same way which row it means."""
        return self.same_key and (self.old.identity is Identity.FULL) == (self.new.identity is Identity.FULL)

    @property
    def keeps_hashes(self) -> bool:
        """True if older rows have the same hashes under the new schema: the columns carried over keep their numbers."""
        kept = all(a.attnum == b.attnum != 0 for a, b in self.carried)
        return kept and all(c.attnum for c in self.dropped)

    @property
    def keeps_hidden(self) -> bool:
        """True if current's hidden columns, `_lp_key` and `_lp_dup`, are right as they are."""
        if self.new.is_bag or self.old.is_bag:
            return self.new.is_bag and self.old.is_bag and self.same_forms
        if not needs_key_text(self.new):
            return not needs_key_text(self.old)
        keys = [(a, b) for a, b in self.carried if b.name in self.new.key]
        return needs_key_text(self.old) and self.same_key and all(_same_form(a, b) for a, b in keys)


def taken_in(version: SchemaVersion) -> SchemaVersion:
    """Return the schema that a table has in the lake: without columns that came and went.

    Nobody knows what older rows read in such a column, and it is gone. A key column stays: that change can't be made in
    place (`why_not_in_place`).
    """
    kept = tuple(column for column in version.columns if column.attnum >= 0)
    if len(kept) == len(version.columns) or not {column.name for column in kept}.issuperset(version.key):
        return version
    return replace(version, columns=kept)


def renamed_away(version: SchemaVersion, landed: SchemaVersion) -> bool:
    """True if `landed` has rows of the table with `version` under another name: whoever goes by names misses them.

    By the time the catalog is read, the table may have its old name again.
    """
    return landed.oid == version.oid and landed.table != version.table


def by_oid(tables: Iterable[tuple[Lsn, SchemaVersion]]) -> dict[Oid, list[tuple[Lsn, SchemaVersion]]]:
    """Return tables, each with a position, by their OIDs; one may be known under several names."""
    result: dict[Oid, list[tuple[Lsn, SchemaVersion]]] = {}
    for position, version in tables:
        result.setdefault(version.oid, []).append((position, version))
    return result


def last_entries(manifest: Manifest) -> list[SchemaEntry]:
    """Return the schemas that come into force, the last of each table, name and transaction."""
    last: dict[tuple[TableName, Oid, Lsn], SchemaEntry] = {}
    for entry in sorted(manifest.schemas, key=lambda e: e.from_seq):
        last[entry.version.table, entry.version.oid, entry.from_lsn] = entry
    return list(last.values())


def compare_schemas(old: SchemaVersion, new: SchemaVersion) -> SchemaDifference:
    """Match the columns of two schemas."""
    before = {(c.attnum if old.oid == new.oid else c.name): c for c in old.columns if c.attnum > 0}
    carried = []
    for column in new.columns:
        earlier = before.get(column.attnum if old.oid == new.oid else column.name)
        if earlier is not None and _carries(earlier, column, same_table=old.oid == new.oid):
            carried.append((earlier, column))
    gone = {c.name for c in old.columns} - {a.name for a, _ in carried}
    come = {c.name for c in new.columns} - {b.name for _, b in carried}
    return SchemaDifference(
        old,
        new,
        tuple(carried),
        tuple(c for c in old.columns if c.name in gone),
        tuple(c for c in new.columns if c.name in come),
    )


def why_not_in_place(difference: SchemaDifference, *, mixed: bool = False) -> str | None:
    """Return why the change can't be made in place, or None. `mixed`: rows under both keys are in one transaction."""
    old, new = difference.old, difference.new
    if old.oid != new.oid:
        return "the table was recreated"
    if old.table != new.table:
        return "its rows came under another name"
    if unknown := [c.name for c in new.columns if c.attnum <= 0]:
        return f"the catalog did not know any more what {', '.join(unknown)} was when the stream had it"
    kept = {c.attnum for c in old.columns}
    if retyped := [c.name for c in difference.added if c.attnum in kept]:
        return f"the type of {', '.join(retyped)} is not a wider one of the same kind"
    if difference.same_rows_meant:
        return None
    if mixed:
        return "its key or identity changed in the middle of a transaction"
    if new.identity is Identity.FULL and new.key:
        return "its configured key under REPLICA IDENTITY FULL is new, and not known to be unique"
    return None


def default_fits(column: Column, text: str) -> bool:
    """True if the text of a default is a value that the column holds in the lake."""
    import pyarrow as pa

    from lakeproof.values.cast import cast_column

    return cast_column(pa.array([text], pa.string()), column).fits


def only_configured(old: SchemaVersion, new: SchemaVersion, pinned: Collection[str]) -> bool:
    """True if the configuration alone says the difference: the source's catalog has the table as it was.

    `pinned` are the columns whose precision is configured. A type that lost its precision looks the same.
    """

    def facts(version: SchemaVersion) -> list[object]:
        columns = [(c.attnum, c.name, c.type_oid, c.identity) for c in version.columns]
        key = None if version.identity is Identity.FULL else version.key
        return [version.oid, version.table, version.identity, key, *columns]

    def same_type(a: Column, b: Column) -> bool:
        return a.kind != b.kind or a.typmod == b.typmod or b.name in pinned

    return facts(old) == facts(new) and all(map(same_type, old.columns, new.columns))


def describe_change(old: SchemaVersion, new: SchemaVersion) -> str:
    """Return what differs between two schemas of a table, for people."""
    difference = compare_schemas(old, new)
    changes = []
    if difference.added:
        changes.append(f"columns added: {', '.join(c.name for c in difference.added)}")
    if difference.dropped:
        changes.append(f"columns dropped: {', '.join(c.name for c in difference.dropped)}")
    for a, b in difference.carried:
        if a.name != b.name:
            changes.append(f"{a.name} renamed to {b.name}")
        if (a.type_name, a.typmod, a.kind) != (b.type_name, b.typmod, b.kind):
            changes.append(f"the type of {b.name} changed from {_typed(a)} to {_typed(b)}")
    if old.oid != new.oid:
        changes.append("the table was recreated")
    elif old.table != new.table:
        changes.append(f"the table was renamed to {new.table}")
    if old.identity != new.identity or not difference.same_key:
        changes.append("its replica identity or key changed")
    return "its schema changed: " + ("; ".join(sorted(changes)) or "the order or numbers of its columns")


def _typed(column: Column) -> str:
    pair = precision_scale(column.typmod) if column.kind == "numeric" else None
    return column.type_name if pair is None else f"{column.type_name}({pair[0]},{pair[1]})"


def _carries(old: Column, new: Column, *, same_table: bool) -> bool:
    """True if the lake's values of the old column are those of the new one."""
    if not same_table:
        # `_lp_text` and `_lp_from` go by attribute numbers, which another table gives anew.
        same = (old.type_oid, old.typmod, old.kind) == (new.type_oid, new.typmod, new.kind)
        return same and (old.attnum == new.attnum or old.kind in WHOLE_KINDS & FIXED_SIZE_KINDS)
    if (old.kind, new.kind) in _WIDER:
        return True
    alike = _alike(old, new)
    if not alike or (old.kind != new.kind and not {old.kind, new.kind} <= {"text", "varchar"}):
        return False
    return spark_type(old) == spark_type(new) or _more_digits(old, new)


def _alike(old: Column, new: Column) -> bool:
    """True if the types are one, or count as one: those of characters, and a domain and what it is of.

    A kind is made from the type below all domains. Only these two have many types.
    """
    if old.type_oid == new.type_oid or {old.type_oid, new.type_oid} <= _CHARACTERS:
        return True
    return old.kind == new.kind and old.kind.removesuffix(ARRAY) not in {EXACT_TEXT, "enum"}


def _more_digits(old: Column, new: Column) -> bool:
    had, has = precision_scale(old.typmod), precision_scale(new.typmod)
    if old.kind != "numeric" or had is None or has is None:
        return False
    return had[1] == has[1] and had[0] <= has[0]


def _same_form(old: Column, new: Column) -> bool:
    return (old.kind, new.kind) != ("float4", "float8")
