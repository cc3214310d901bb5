"""Where a table's shape changes: in place, or the table is held there, or the catalog has to be read first.

What a cycle takes beside that belongs to `plan`, which asks here; how columns carry on to `evolution`; making the change to
`reshape`. docs/schema-changes.md has the decisions for people.

A change comes into force with a transaction. The cycle before ends right before it; then a cycle of kind `schema` with an
empty range gives the tables their shape, the last one that they have in that transaction; then the transaction is applied,
its rows of earlier shapes as rows of the last. What rows read in an added column that are older than it is in the chain's
records of the catalog: a fast default, or NULL where the table's file is the same; otherwise nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeproof.catalog.differences import AddedColumn, Difference, TableChange
from lakeproof.errors import InvariantError, LakeError, TableError
from lakeproof.lake.planning.range_counts import count_changes
from lakeproof.lake.planning.schema_change import Evolution, default_fits, describe_change, evolve, obstacle, taken_in
from lakeproof.lake.records.cut_documents import read_shape
from lakeproof.lake.records.documents import RESNAPSHOT, Cut, CutTable, Held, Reshape
from lakeproof.landing.catalog_history import catalog_links, newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import Manifest, SchemaEntry
from lakeproof.landing.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import Column, SchemaVersion

_NEW_FILES = frozenset({Difference.FILE, Difference.REWRITTEN, Difference.PARTITION_FILE})


@dataclass(slots=True)
class Turn:
    """What becomes of the tables whose shape changes right after a position; `waits` have to wait for the catalog."""

    reshape: dict[TableName, Reshape] = field(default_factory=dict)
    held: dict[TableName, Held] = field(default_factory=dict)
    waits: set[TableName] = field(default_factory=set)


class UnprovenError(Exception):
    """What older rows read in an added column is not known; the message says why."""


def turn(chain: Chain, start: Lsn, tables: Mapping[TableName, CutTable]) -> Turn:
    """The tables (in the lake, at `start`, not held) that the transaction right after `start` brings another shape of."""
    found, after = Turn(), Lsn(int(start) + 1)
    for manifest in chain.between(start, after):
        entries: dict[TableName, list[SchemaEntry]] = {}
        for entry in sorted(manifest.schemas, key=lambda e: e.from_seq):
            if entry.from_lsn == after and entry.version.table in tables:
                entries.setdefault(entry.version.table, []).append(entry)
        for table, versions in entries.items():
            shapes = [entry.version for entry in versions]
            mixed = _under_two_keys(chain, start, taken_in(shapes[-1]))
            decide(chain, tables[table], shapes, after, found, mixed=mixed)
    return found


def last_entries(manifest: Manifest) -> list[SchemaEntry]:
    """The shapes that come into force, of each table and transaction the last."""
    last: dict[tuple[TableName, Lsn], SchemaEntry] = {}
    for entry in sorted(manifest.schemas, key=lambda e: e.from_seq):
        last[entry.version.table, entry.from_lsn] = entry
    return list(last.values())


def missing_values(chain: Chain, at: CutTable, found: Evolution, since: Lsn) -> Mapping[int, str] | None:
    """What older rows read in each added column that is not NULL, by attribute number; None: the catalog has to be read.

    `at` is the table in the lake, `since` where the columns were there at the latest. Raises
    UnprovenError where the records of the catalog do not tell.
    """
    wanted = {c.attnum: c for c in found.added}
    missing: dict[int, str] = {}
    same_life = at.snapshot_incarnation == chain.incarnation
    for manifest in catalog_links(chain, at.snapshot_lsn if same_life else chain.head.end_lsn) if wanted else ():
        change = None if manifest.catalog is None else manifest.catalog.change_of(found.new.oid)
        for added in () if change is None else change.added:
            column = wanted.pop(added.attnum, None)
            if column is None or change is None:
                continue
            text = _value(added, change)
            if text is None:
                continue
            missing[added.attnum] = _fitting(column, text)
    if wanted and since <= (chain.newest.catalog_lsn or Lsn.ZERO):
        missing |= _still_kept(chain, found, wanted)
        wanted = {a: c for a, c in wanted.items() if a not in missing}
    if wanted and since <= (chain.newest.catalog_lsn or Lsn.ZERO):
        raise UnprovenError(f"the catalog's records do not have {', '.join(c.name for c in wanted.values())}")
    return None if wanted else missing


def older_shapes(
    chain: Chain, version: SchemaVersion, files: Sequence[Slice], start: Lsn, end: Lsn
) -> dict[SchemaVersion, list[Slice]]:
    """The files with rows in (start, end] of other shapes than `version`, by shape: of the transaction that brought it."""
    found: dict[SchemaVersion, list[Slice]] = {}
    for piece in files:
        if piece.file.schema_id != version.id and count_changes([piece], start, end).rows:
            shape = _shape_of(chain, piece)
            found.setdefault(shape, []).append(piece)
    return found


def waiting(chain: Chain, cut: Cut) -> frozenset[TableName]:
    """The tables whose change of shape the cycle after `cut` waits with, until the catalog was read."""
    if chain.end <= cut.position:
        return frozenset()
    return frozenset(turn(chain, cut.position, {t: at for t, at in cut.tables.items() if t not in cut.held}).waits)


def proven_values(chain: Chain, at: CutTable | None, found: Evolution, since: Lsn) -> Mapping[int, str]:
    """`missing_values` of what was asked before the shape came into force."""
    try:
        missing = None if at is None else missing_values(chain, at, found, since)
    except UnprovenError:
        missing = None
    if missing is None:
        raise InvariantError(str(found.new.table), "rows of another shape lie in the cycle's range", "report this")
    return missing


def _shape_of(chain: Chain, piece: Slice) -> SchemaVersion:
    """A file's shape, from the link that said it last: every connection of a drain names it before its rows.

    A connection may be older than the links that are kept: then the shape is one that the table has had in a cut.
    """
    for number in range(piece.number, max(chain.head.number, chain.first_number - 1), -1):
        for entry in chain.manifest(number).schemas:
            if entry.version.id == piece.file.schema_id:
                return entry.version
    try:
        return read_shape(chain.store, chain.paths, piece.file.schema_id)
    except LakeError as error:
        reason = f"no link that is kept names the shape {piece.file.schema_id} of some of its rows, and no cut had it"
        raise TableError(str(piece.file.table), reason, RESNAPSHOT) from error


def decide(
    chain: Chain, at: CutTable, versions: Sequence[SchemaVersion], since: Lsn, into: Turn, *, mixed: bool
) -> None:
    """Of one table: the shapes that it has one after the other, from `since` on the last.

    `mixed`: rows under both keys stand in one transaction.
    """
    *earlier, last = map(taken_in, versions)
    old: list[SchemaVersion] = [v for v in [at.version, *earlier] if v.id != last.id]
    if not old:
        return
    table = at.version.table
    found = [evolve(v, last) for v in old]
    reasons = [reason for one in found if (reason := obstacle(one, mixed=mixed)) is not None]
    try:
        known = [missing_values(chain, at, one, since) for one in found] if not reasons else []
    except UnprovenError as error:
        reasons, known = [str(error)], []
    if reasons:
        told = f"{describe_change(old[0], last)} ({reasons[0]})"
        into.held[table] = Held(at.at_lsn, told, RESNAPSHOT)
    elif None in known:
        into.waits.add(table)
    elif at.version.id != last.id:
        into.reshape[table] = Reshape(last, known[0] or {})


def _under_two_keys(chain: Chain, start: Lsn, new: SchemaVersion) -> bool:
    """Whether the transaction right after `start` has rows under another key or identity than `new` has.

    Other transactions of its segment don't count.
    """
    after = Lsn(int(start) + 1)
    for piece in slices(chain, start, after, new.table):
        try:
            found = evolve(taken_in(_shape_of(chain, piece)), new)
        except TableError:
            return True
        if not found.same_rows_meant and count_changes([piece], start, after).rows > 0:
            return True
    return False


def _still_kept(chain: Chain, found: Evolution, wanted: Mapping[int, Column]) -> dict[int, str]:
    """What the catalog keeps of these columns at the newest reading, where the records of their coming have been removed.

    A fast default is set when the column is added, stays as it is, and goes with the first rewrite: where there is one, all
    older rows read it. Where there is none, nothing is known.
    """
    newest = newest_catalog(chain)
    table = None if newest is None else newest.tables.get(found.new.oid)
    kept = {} if table is None else {c.attnum: c.missing for c in table.columns}
    values = {a: element_of_one(text) for a in wanted if (text := kept.get(a)) is not None}
    return {a: _fitting(wanted[a], value) for a, value in values.items() if value is not None}


def _fitting(column: Column, text: str) -> str:
    if not default_fits(column, text):
        raise UnprovenError(f"the default of {column.name} is kept as text only")
    return text


def _value(added: AddedColumn, change: TableChange) -> str | None:
    if added.missing is not None:
        return element_of_one(added.missing)
    if _NEW_FILES & set(change.differences):
        raise UnprovenError(
            f"the rows that {added.name} was added to were written anew, with values that are not known"
        )
    return None


def element_of_one(array: str) -> str | None:
    """The element of PostgreSQL's text of an array of one; None for NULL."""
    inner = array[1:-1]
    if not inner.startswith('"'):
        return None if inner == "NULL" else inner
    text, escaped = [], False
    for character in inner[1:-1]:
        if character == "\\" and not escaped:
            escaped = True
            continue
        text.append(character)
        escaped = False
    return "".join(text)
