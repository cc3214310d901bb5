"""A table's landed files in a range: their changes, counted, and columns of the lake from their batches, read or computed.

Choosing the range and its files belongs to `lakeproof.lake.planning`, adding changes up to `lakeproof.lake.fold`; exact
forms belong to `lakeproof.values.exact_texts`. The expressions of Spark for the same columns are in `columns`, and one
suite over all kinds holds the two equal. Spark is not imported here.

    `_lp_key`      a bag: the row's digest; a key that is not compared as it is: its framed text; NULL beside a TRUNCATE
    `_lp_dup`      of a bag: the ordinal of the row's arrival
    `__lp_digest`  the digest of any row, which distinguishes rows with one key; never written
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import DUP, FROM, KEY, OP, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, has_old_rows, keeps_key
from lakeproof.lake.planning.schema_changes import older_versions
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.change import Mask, Numbers
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.landing.segments.reader import Slice, count_changes
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.exact_texts import HiddenTexts, exact_texts, key_texts, row_digests
from lakeproof.values.types import arrow_type


@dataclass(frozen=True, slots=True)
class LandedRange:
    """The landed files of one table under one schema version, and the part of the stream, (start, end], to take from them.

    `schema` has the lake's column names; `first_ordinals` gives the `_lp_ord` of row 0 of each segment by its number.
    """

    schema: SchemaVersion
    slices: Sequence[Slice]
    first_ordinals: Mapping[int, int]
    start: Lsn
    end: Lsn


@dataclass(frozen=True, slots=True)
class FoldedFile:
    """A landed file: which of its rows are in the range, and which of these current gets.

    `holes`: the rows that lack a value which the update left out. `numbers` are those of its rows in the range's order, as
    `fold.holders` has them, -1 for a row outside; None if no row of the range lacks a value.
    """

    piece: Slice
    in_range: Mask
    alive: Mask
    holes: Mask
    numbers: Numbers | None = None


DIGEST = scratch("digest")
_COMPUTED = frozenset({KEY, DUP, DIGEST, FROM})
_TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class FileRows:
    """Gives `names`, columns of the lake, from batches of a landed file; `schema` has the lake's names.

    `_lp_from` never does, nor `_lp_key` of a table that has none: both are NULL, and left out.
    """

    schema: SchemaVersion
    names: Sequence[str]

    @property
    def needed(self) -> list[str]:
        """The names in the file of the columns that are read."""
        return list(names_in_files(self.schema, self._read()).values())

    def of(self, batch: pa.RecordBatch, moved: int = 0) -> dict[str, pa.Array]:
        """Return the columns of a batch; `moved` is added to `_lp_ord`."""
        own = names_in_files(self.schema, self._read())
        values = {name: batch.column(in_file) for name, in_file in own.items()}
        if moved and ORD in values:
            values[ORD] = pc.add(values[ORD], pa.scalar(moved, pa.int64()))
        if OP in values:
            values[OP] = values[OP].cast(pa.string())
        values |= self._computed(values, batch.num_rows)
        return {name: values[name] for name in self.names if name in values}

    def _read(self) -> list[str]:
        schema = self.schema
        read = dict.fromkeys(name for name in self.names if name not in _COMPUTED)
        if DUP in self.names:
            read[ORD] = None
        if KEY in self.names and keeps_key(schema):
            read |= dict.fromkeys([*(column_names(schema) if schema.is_bag else schema.key), TEXT, OP])
        if DIGEST in self.names:
            read |= dict.fromkeys([*column_names(schema), TEXT])
        return list(read)

    def _computed(self, values: Mapping[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        result = {DUP: values[ORD]} if DUP in self.names else {}
        is_keyed = KEY in self.names and keeps_key(self.schema)
        if not is_keyed and DIGEST not in self.names:
            return result
        _check_types(self.schema, values)
        hidden = HiddenTexts.of(values[TEXT])
        if DIGEST in self.names:
            result[DIGEST] = row_digests(self.schema, values, hidden, rows)
        if is_keyed:
            result[KEY] = _key(self.schema, values, hidden, rows)
        return result


def names_in_files(schema: SchemaVersion, columns: Sequence[str]) -> dict[str, str]:
    """Return columns of the lake with their names in landed files."""
    own: Mapping[str, str] = dict(zip(column_names(schema), file_names(schema), strict=True))
    return {name: own.get(name, name) for name in columns}


def _key(schema: SchemaVersion, values: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> pa.Array:
    is_none = pc.equal(values[OP], _TRUNCATE)
    if schema.is_bag:
        keys = row_digests(schema, values, hidden, rows)
    else:
        keys = key_texts(schema, values, hidden)
        # An identity's index has no NULL: whoever looks for the key sees that this row has none.
        for column in () if has_old_rows(schema) else key_columns(schema):
            is_none = pc.or_(is_none, exact_texts(column, values[column.name], hidden).is_null())
    return pc.if_else(is_none, pa.scalar(None, pa.string()), keys)


def _check_types(schema: SchemaVersion, values: Mapping[str, pa.Array]) -> None:
    for column in schema.columns:
        if column.name in values and values[column.name].type != arrow_type(column):
            reason = f"a landed file has {values[column.name].type} for the kind {column.kind}"
            raise InvariantError(f"column {column.name}", reason, "report this")


class TableRange:
    """A table's landed changes in a range, whatever schemas its files have: counted, and read by Spark.

    `landed` has all of its files; `before` is the table in the cut that the range follows, None if it was in none.
    """

    def __init__(self, chain: Chain, version: SchemaVersion, before: CutTable | None, landed: LandedRange) -> None:
        self.chain = chain
        self.version = version
        self.before = before
        self.schema = landed.schema
        pieces = [f for f in landed.slices if f.file.schema_id == version.id]
        self.landed = replace(landed, slices=pieces)
        alike = len(pieces) == len(landed.slices)
        self.older = {} if alike else older_versions(chain, version, landed.slices, landed.start, landed.end)
        both = [*pieces, *(piece for older in self.older.values() for piece in older)]
        self.counts = count_changes(both, landed.start, landed.end)

    @property
    def needs_base(self) -> bool:
        """True if the table's rows before the range may be needed to add it up."""
        by_digest = not self.counts.inserts_only if self.schema.is_bag else has_old_rows(self.schema)
        return self.counts.unchanged > 0 or by_digest
