"""Columns of the lake as Spark expressions: by exact name, the columns that distinguish rows, and values' exact forms.

Names alone belong to `lakeproof.lake.columns` and `lakeproof.schema.lake_names`, the same forms in PostgreSQL's SQL to
`lakeproof.proof.source.form`; using a digest belongs to the callers.

Digests of bags, corrections and proofs are computed from exact forms: one text per value, equal on both sides (`FORMAT.md`,
last section), framed so that the concatenation of a row's values can be read back in one way only: NULL is `~`, any other
value `<octets>:<text>`. In a row, a value whose kind never has an empty text or a `|` in its text is ended by `|` instead,
and NULL is `|` alone: counting octets costs PostgreSQL as much as all the rest, since it computes each text twice. The text
of each kind is in the table of kinds (`lakeproof.values.types`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import TEXT
from lakeproof.lake.columns import quoted
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.cast import unheld_pattern
from lakeproof.values.exact_kinds import END, NULL_FORM, is_ended, key_columns, needs_key_text
from lakeproof.values.spark_sql import decimal_text
from lakeproof.values.types import KINDS, kind_of

# The SQL of a value's text by the name of its Spark type; whole numbers have no kind for the smallest.
_BY_TYPE = {"tinyint": KINDS["int2"].spark_text} | {
    kind.spark_name: kind.spark_text for kind in KINDS.values() if kind.element is None
}


def exact_form(column: Column) -> SparkColumn:
    """Return the framed exact form of the value of `column`, in rows that have `_lp_text`.

    A hidden text counts if the column is null and its type does not hold the value; any other hidden text contradicts what
    readers see, and gives a form that no value of the source has.
    """
    return F.expr(framed(_text_sql(column)))


def exact_text(column: Column) -> SparkColumn:
    """Return the exact text alone, not framed; null for NULL."""
    return F.expr(_text_sql(column))


def _text_sql(column: Column) -> str:
    text = _text_of_kind(column)
    beside = _beside(column)
    if beside is None:
        return text
    return (
        f"case when {beside.none} then {text} when {text} is null and {beside.proper} then {beside.text}"
        f" else concat('{NULL_FORM}', coalesce({text}, ''), '{NULL_FORM}', {beside.text}) end"
    )


@dataclass(frozen=True, slots=True)
class _Beside:
    """SQL: a value's hidden text; the condition that there is none; the condition that the type can't hold such a value."""

    text: str
    none: str
    proper: str


def _beside(column: Column) -> _Beside | None:
    """Return the hidden text of the column's value, None if the type holds all values.

    Our writers never put a text beside a value, or in place of a value that readers should see.
    """
    kind = kind_of(column)
    if column.attnum <= 0 or kind.holds_every_value:
        return None
    hidden = f"get_json_object({quoted(TEXT)}, '$.{column.attnum}')"
    # Few rows have any hidden text.
    none = f"({quoted(TEXT)} is null or {hidden} is null)"
    return _Beside(hidden, none, f"({hidden} rlike r'{unheld_pattern(column)}')")


def ended_form(column: Column, typed: SparkColumn | None = None) -> SparkColumn:
    """`<text>|`, NULL as `|`; `typed` is another text of the typed value than the kind's own.

    A hidden text that the kind can't have does not look like another row's values.
    """
    text = F.expr(_text_of_kind(column)) if typed is None else typed
    beside = _beside(column)
    if beside is not None:
        hidden = F.expr(f"translate({beside.text}, '{END}', '{NULL_FORM}')")
        wrong = F.concat(F.lit(NULL_FORM), F.coalesce(text, F.lit("")), F.lit(NULL_FORM), hidden)
        text = F.when(F.expr(beside.none), text).when(text.isNull() & F.expr(beside.proper), hidden).otherwise(wrong)
    return F.concat(F.coalesce(text, F.lit("")), F.lit(END))


def typed_text(kind: str, name: str) -> str:
    """The SQL of the exact text of a typed value of a kind without parameters, in the Spark column `name`."""
    return KINDS[kind].spark_text(quoted(name), -1)


def framed(text: str) -> str:
    """The SQL of `<octets>:<text>` or `~` around the SQL of a text."""
    return f"coalesce(concat(octet_length({text}), ':', {text}), '{NULL_FORM}')"


def row_forms(version: SchemaVersion) -> list[SparkColumn]:
    """The exact forms of all columns of `version`, in its order, framed as in a row."""
    return [ended_form(c) if is_ended(c) else exact_form(c) for c in version.columns]


def row_digest(forms: Sequence[SparkColumn]) -> SparkColumn:
    """The MD5 of the concatenated forms, 32 hexadecimal digits; never null."""
    return F.md5(F.concat(*forms) if forms else F.lit(""))


def digest_bits(digest: SparkColumn) -> SparkColumn:
    """The first 60 bits of a digest as a long; a long has no room for the sum of nine of them."""
    return F.conv(F.substring(digest, 1, 15), 16, 10).cast("long")


def digest_of_columns(rows: DataFrame, columns: Sequence[str]) -> SparkColumn:
    """The digest of each row over `columns`, by the exact forms of Spark's types: a view's have none of PostgreSQL's.

    Arrays and structs are represented by their elements, maps by their sorted entries. Raises ConfigError for a type
    that has no exact form (variant, intervals, user-defined types).
    """
    types = {field.name: field.dataType for field in rows.schema.fields}
    return row_digest([F.expr(framed(_text_of_type(types[name], quoted(name), name, 0))) for name in columns])


def _text_of_kind(column: Column) -> str:
    """The SQL of PostgreSQL's output text of a value, by kind; NULL for NULL."""
    return kind_of(column).spark_text(quoted(column.name), column.typmod)


def _text_of_type(data_type: T.DataType, x: str, name: str, depth: int) -> str:
    """The SQL of an injective text of the value `x`, by Spark type; `depth` keeps the lambdas' variables apart."""
    if isinstance(data_type, T.StringType):
        return x
    if isinstance(data_type, T.DecimalType):
        return decimal_text(x, data_type.scale)
    if data_type.simpleString() in _BY_TYPE:
        return _BY_TYPE[data_type.simpleString()](x, -1)
    var = f"e{depth}"
    if isinstance(data_type, T.ArrayType):
        each = framed(_text_of_type(data_type.elementType, var, name, depth + 1))
        return f"array_join(transform({x}, {var} -> {each}), '')"
    if isinstance(data_type, T.StructType):
        fields = ", ".join(
            framed(_text_of_type(f.dataType, f"{x}.{quoted(f.name)}", name, depth)) for f in data_type.fields
        )
        return f"if({x} is null, null, concat({fields}))"
    if isinstance(data_type, T.MapType):
        key = framed(_text_of_type(data_type.keyType, f"{var}.key", name, depth + 1))
        value = framed(_text_of_type(data_type.valueType, f"{var}.value", name, depth + 1))
        return f"array_join(array_sort(transform(map_entries({x}), {var} -> {framed(f'concat({key}, {value})')})), '')"
    raise ConfigError(
        f"column {name}", f"its type {data_type.simpleString()} has no exact form", "cast it to text in the view's SQL"
    )


def col(name: str) -> SparkColumn:
    """Return a column by its exact name, which may have any characters."""
    return F.col(quoted(name))


def relation(session: SparkSession, rows: pa.Table, schema: StructType | str | None = None) -> DataFrame:
    """Return rows of Arrow's as a relation that the driver holds; `schema` or its DDL, if Arrow's types do not say it.

    In one piece: Spark 4.2 leaves out whatever comes after an empty batch.
    """
    whole = rows.combine_chunks()
    return session.createDataFrame(whole) if schema is None else session.createDataFrame(whole, schema)


def int_pairs(name: str, value: str, pairs: Mapping[int, int]) -> pa.Table:
    """Return pairs of whole numbers as Arrow, for `relation`.

    Of a list of Python's Spark makes tasks of Python's, which executors of a cluster need not have.
    """
    return pa.table({name: pa.array(list(pairs), pa.int64()), value: pa.array(list(pairs.values()), pa.int64())})


def no_rows(session: SparkSession, types: Mapping[str, str | DataType]) -> DataFrame:
    """Return a frame of no rows: name → Spark's type, or its DDL."""
    return session.range(1).limit(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in types.items()))


def key_value(schema: SchemaVersion) -> SparkColumn:
    """Return the value of `_lp_key`: a bag's digest, the key's framed text, or null if its columns compare exactly."""
    if schema.is_bag:
        return row_key(schema)
    if needs_key_text(schema):
        return F.concat(*(exact_form(c) for c in key_columns(schema)))
    return F.lit(None).cast("string")


def row_key(schema: SchemaVersion) -> SparkColumn:
    """Return the digest of a whole row by exact forms."""
    return row_digest(row_forms(schema))


def named(schema: SchemaVersion) -> list[SparkColumn]:
    """Return a landed file's columns under the table's names."""
    return [col(name).alias(c.name) for name, c in zip(file_names(schema), schema.columns, strict=True)]


def pick(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return the columns by exact name, in this order."""
    return frame.select(*(col(n) for n in names))
