"""The comparison of a table's exact forms in PostgreSQL with those in the lake, by Spark and in Arrow.

Which types are compared belongs to the tests; their values are in `exact_values.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
from psycopg.sql import SQL
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakeproof.lake.rows import columns as rows_columns
from lakeproof.lake.rows.hashed import RowsOfBatch
from lakeproof.postgres.connections.connect import Connection
from lakeproof.proof.lake.form import proof_forms
from lakeproof.proof.lake.jvm_functions import jvm_functions
from lakeproof.proof.source import form as source_form
from lakeproof.schema import SchemaVersion


def source_digests(conn: Connection, relation: source_form.ComparedRelation) -> dict[str, str]:
    """Each row's digest and its framed text, from the SQL that the proof's own queries have for them."""
    # The proof itself needs 60 bits of the digest, and no text.
    text, source = source_form._row_text(relation), source_form._from(relation)
    octets = source_form._octets(text, relation)
    query = SQL("SELECT md5({octets}), {text} {source}").format(octets=octets, text=text, source=source)
    return {str(digest): str(value) for digest, value in conn.execute(query)}


def assert_same_forms(
    source: dict[str, str], lake: DataFrame, batches: Iterable[pa.RecordBatch], version: SchemaVersion
) -> None:
    """Compare the digests of both sides, by all paths; names the first values that differ. `batches` are the lake's rows."""
    functions = jvm_functions(lake.sparkSession)
    assert functions is not None, "they do what they should in the Spark that is locked"
    # A bag's forms are the same by both.
    for road in (functions,) if version.is_bag else (functions, None):
        assert_same_digests(source, lake, proof_forms(version, road))
    hashes = lake.select(functions.text_bits(F.concat(*proof_forms(version, functions))))
    assert sorted(r[0] for r in hashes.collect()) == sorted(int(digest[:15], 16) for digest in source)
    assert_same_in_arrow(source, batches, version)


def assert_same_in_arrow(source: dict[str, str], batches: Iterable[pa.RecordBatch], version: SchemaVersion) -> None:
    """The hashes of rows in Arrow are the first bits of the source's digests, whole columns at a time and row by row."""
    actual = dict[int, int]()
    for batch in batches:
        bits = _bits(version, batch)
        assert bits == [bit for row in range(batch.num_rows) for bit in _bits(version, batch.slice(row, 1))]
        actual |= Counter(bits)
    expected = Counter(int(digest[:15], 16) for digest in source)
    if actual != expected:
        wrong = {text for digest, text in source.items() if int(digest[:15], 16) not in actual}
        print(*(repr(text)[:300] for text in sorted(wrong)[:6]), sep="\n")  # noqa: T201  (shown on failure)
    assert actual.keys() == expected.keys()


def _bits(version: SchemaVersion, batch: pa.RecordBatch) -> list[int]:
    return [int(bits) for bits in RowsOfBatch.of(version, batch).hashed(version, 1)[0]]


def assert_same_digests(source: dict[str, str], lake: DataFrame, forms: list[Column]) -> None:
    """The digests of `forms` in the lake are those of the source's rows."""
    actual = {r[0]: r[1] for r in lake.select(rows_columns.row_digest(forms), F.concat(*forms)).collect()}
    wrong = [
        sorted(side[d] for d in side.keys() ^ other.keys() if d in side)
        for side, other in ((source, actual), (actual, source))
    ]
    for ours, theirs in list(zip(*wrong, strict=False))[:6]:
        position = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
        here = slice(max(0, position - 40), position + 60)
        print(f"source {ours[here]!r}, lake {theirs[here]!r}")  # noqa: T201  (shown on failure)
    assert actual == source
