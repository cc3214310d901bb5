"""The landed files of a table's range, and columns of the lake from their batches, in Arrow: read, or computed.

The expressions of Spark for the same are in `columns`, and one suite over all kinds holds the two equal; exact forms belong
to `lakeproof.values.exact_texts`. Spark is not imported here.

    `_lp_key`      a bag: the row's digest; a key that is not compared as it is: its framed text; NULL beside a TRUNCATE
    `_lp_dup`      of a bag: the ordinal of the row's arrival
    `__lp_digest`  the digest of any row, which distinguishes rows with one key; never written
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import DUP, FROM, KEY, OP, ORD, TEXT, scratch
from lakeproof.lake.columns import column_names, has_old_rows, keeps_key
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.landing.segments.reader import Slice
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
