"""The exact form of a row's values as PostgreSQL's SQL: the twin of `lakeproof.lake.rows.columns`.

Connections, snapshots and comparing belong elsewhere: here are `psycopg.sql` composables and nothing runs.

The text of a value is its output function's, under the settings that every connection of ours pins. A cast to text is
not the output function (it takes a bpchar's blanks away, writes `true` for a bool and adds `/32` to an inet);
`concat(value)` is. Octets are UTF-8's on both sides, so a database in another encoding converts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from lakeproof.errors import InvariantError
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.exact_kinds import END, is_ended, key_columns, whole_key
from lakeproof.values.types import Form, decimal_size, kind_of

_ARGUMENTS_MAX = 90  # PostgreSQL takes 100 arguments per function call
# A SQL_ASCII database's texts go over the wire as they are, so they must be UTF-8 already.
_UNCONVERTED = frozenset({"UTF8", "SQL_ASCII"})


@dataclass(frozen=True, slots=True)
class ComparedRelation:
    """The rows of one published table that are read.

    `rows` is the item of FROM that has them; `row_filter` is the publication's, in PostgreSQL's SQL; `encoding` is the
    database's `server_encoding`. `reads_hex`: the server reads whole numbers of hexadecimal digits (PostgreSQL 16), which is
    a tenth of a row's time cheaper than by a string of bits.
    """

    version: SchemaVersion
    rows: sql.Composable
    row_filter: str | None = None
    encoding: str = "UTF8"
    reads_hex: bool = False


def buckets_query(relation: ComparedRelation, buckets: int) -> sql.Composed:
    """One row (bucket, count of rows, sum of the rows' hashes) for each bucket that has rows.

    PostgreSQL takes the buckets to be as many as the key's values, so it would sort the whole table, on disk, before it
    groups. Of the columns of a union it knows nothing, and expects 200: it groups by hash, in each of its workers.
    """
    hashed = sql.SQL("SELECT {bucket} AS bucket, {hash} AS hash {source} UNION ALL SELECT NULL, NULL WHERE false")
    return sql.SQL("SELECT bucket, count(*), sum(hash) FROM ({rows}) AS lp_rows GROUP BY bucket").format(
        rows=hashed.format(
            bucket=_bucket(relation, buckets), hash=_bits(_row_text(relation), relation), source=_from(relation)
        )
    )


def buckets_of_all_query(relations: Sequence[tuple[ComparedRelation, int]]) -> sql.Composed:
    """One row (number of the relation, bucket, count, sum) for each bucket that has rows, of several in one statement."""
    queries = [
        sql.SQL("SELECT {number} AS relation, lp_buckets.* FROM ({buckets}) AS lp_buckets").format(
            number=sql.Literal(number), buckets=buckets_query(relation, buckets)
        )
        for number, (relation, buckets) in enumerate(relations)
    ]
    return sql.SQL(" UNION ALL ").join(queries)


def rows_query(relation: ComparedRelation, buckets: int, chosen_buckets: Sequence[int]) -> sql.Composed:
    """One row (bucket, hash, exact text of each key column or NULL …) for each row in the `chosen_buckets`, in order.

    A bag has no key columns: its rows are identified by their hashes.
    """
    bucket = _bucket(relation, buckets)
    where = sql.SQL("{bucket} IN ({chosen_buckets})").format(
        bucket=bucket, chosen_buckets=sql.SQL(", ").join(sql.Literal(b) for b in chosen_buckets)
    )
    return sql.SQL("SELECT {columns} {source} AND {where} ORDER BY 1").format(
        columns=sql.SQL(", ").join([bucket, *_hash_and_key(relation)]), source=_from(relation), where=where
    )


def keyed_rows_query(relation: ComparedRelation, condition: sql.Composable) -> sql.Composed:
    """One row (hash, exact text of each key column or NULL …) for each row of which the condition is true."""
    columns = sql.SQL(", ").join(_hash_and_key(relation))
    return sql.SQL("SELECT {columns} {source} AND {where}").format(
        columns=columns, source=_from(relation), where=condition
    )


def _hash_and_key(relation: ComparedRelation) -> list[sql.Composable]:
    texts = [
        sql.SQL("CASE WHEN {null} THEN NULL ELSE {text} END").format(null=_is_null(c), text=_text(c))
        for c in key_columns(relation.version)
    ]
    return [_bits(_row_text(relation), relation), *texts]


def framed(column: Column, encoding: str = "UTF8") -> sql.Composed:
    """`<octets>:<text>`, or `~` for NULL."""
    if kind_of(column).casts_to_text and encoding in _UNCONVERTED:
        return sql.SQL("CASE WHEN {text} IS NULL THEN '~' ELSE octet_length({text}) || ':' || {text} END").format(
            text=sql.SQL("{}::text").format(sql.Identifier(column.name))
        )
    text = _text(column)
    octets: sql.Composable = sql.SQL("octet_length({})").format(text)
    if encoding not in _UNCONVERTED:
        octets = sql.SQL("octet_length(convert_to({}, 'UTF8'))").format(text)
    return sql.SQL("CASE WHEN {null} THEN '~' ELSE {octets} || ':' || {text} END").format(
        null=_is_null(column), octets=octets, text=text
    )


def _is_null(column: Column) -> sql.Composed:
    # Not IS NULL, which is also true of a composite value whose fields are all null.
    return sql.SQL("num_nulls({}) > 0").format(sql.Identifier(column.name))


def _text(column: Column) -> sql.Composed:
    """The output function's text; NULL or empty for NULL."""
    value = _value(column)
    return value if isinstance(value, sql.Composed) else sql.SQL("concat({})").format(value)


def _value(column: Column) -> sql.Composed | sql.Identifier:
    """Return a text, or the column itself if `concat` makes its text."""
    kind = kind_of(column)
    if kind.source is None:
        return sql.Identifier(column.name)
    precision, scale = decimal_size(column.typmod) if kind.form is Form.DECIMAL else (0, 0)
    limit = sql.Literal(f"1e{precision - scale}")
    return sql.SQL(kind.source).format(x=sql.Identifier(column.name), s=sql.Literal(scale), limit=limit)


def _row_text(relation: ComparedRelation) -> sql.Composable:
    """Each value as `lakeproof.proof.lake.form.proof_forms` has it; `concat` leaves NULLs out."""
    parts: list[sql.Composable] = []
    for column in relation.version.columns:
        octets = None if relation.version.is_bag else kind_of(column).source_octets
        if octets is not None:
            parts += [sql.SQL(octets).format(x=sql.Identifier(column.name)), sql.Literal(END)]
        elif is_ended(column):
            parts += [_value(column), sql.Literal(END)]
        else:
            parts.append(framed(column, relation.encoding))
    return _concat(parts)


def _concat(parts: Sequence[sql.Composable]) -> sql.Composable:
    if not parts:
        return sql.SQL("''")
    groups = [parts[i : i + _ARGUMENTS_MAX] for i in range(0, len(parts), _ARGUMENTS_MAX)]
    joined = [sql.SQL("concat({})").format(sql.SQL(", ").join(group)) for group in groups]
    return joined[0] if len(joined) == 1 else _concat(joined)


def _octets(text: sql.Composable, relation: ComparedRelation) -> sql.Composable:
    if relation.encoding in _UNCONVERTED:
        return text
    return sql.SQL("convert_to({}, 'UTF8')").format(text)


def _bits(text: sql.Composable, relation: ComparedRelation) -> sql.Composed:
    """The first 60 bits of a text's MD5 as bigint."""
    number = (
        "('0x' || left(md5({}), 15))::bigint" if relation.reads_hex else "('x' || left(md5({}), 15))::bit(60)::bigint"
    )
    return sql.SQL(number).format(_octets(text, relation))


def _bucket(relation: ComparedRelation, buckets: int) -> sql.Composed:
    if not 1 <= buckets <= 1 << 20:
        raise InvariantError(str(relation.version.table), f"{buckets} buckets were asked for", "report this")
    if buckets == 1:
        return sql.SQL("0").format()
    number = None if relation.version.is_bag else whole_key(relation.version)
    if number is not None:
        # PostgreSQL's remainder has the sign of the number.
        return sql.SQL("((coalesce({key}::bigint, 0) % {n}) + {n}) % {n}").format(
            key=sql.Identifier(number.name), n=sql.Literal(buckets)
        )
    if relation.version.is_bag:
        text = _row_text(relation)
    else:
        text = _concat([framed(c, relation.encoding) for c in key_columns(relation.version)])
    return sql.SQL("{bits} % {buckets}").format(bits=_bits(text, relation), buckets=sql.Literal(buckets))


def _from(relation: ComparedRelation) -> sql.Composed:
    """FROM and WHERE; the filter is the catalog's own text of it, so it is SQL and not a value."""
    return sql.SQL("FROM {rows} WHERE ({filter})").format(
        rows=relation.rows, filter=sql.SQL(relation.row_filter or "true")
    )
