"""COPY's text format: what `split` finds against the format's own rules, on blocks that are made here.

What a real server sends is tested in tests/edges/snapshot/test_snapshot_values.py.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakeproof.errors import InvariantError
from lakeproof.names import Oid
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.copying.blocks import typed_batch
from lakeproof.postgres.copying.text import split
from lakeproof.schema import Column

Row = tuple[str | None, ...]
_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_PIECES = ("", "N", "\\", "\\N", "\\.", "\t", "\n", "\r\n", "\v\f\b", " ", ",", '"', "NULL", "é😀", "\ufeff", "x" * 40)


def block_of(*messages: bytes) -> MessageBuffer:
    """Return messages as they come from a socket, with their envelopes between them."""
    octets = b"".join(b"d" + (4 + len(m)).to_bytes(4, "big") + m for m in messages)
    end = np.cumsum([5 + len(m) for m in messages])
    return MessageBuffer(np.frombuffer(bytearray(octets), np.uint8), end - [len(m) for m in messages], end)


def _block(rows: list[Row]) -> MessageBuffer:
    """The rows as PostgreSQL's CopyAttributeOutText writes them."""
    fields = [["\\N" if v is None else "".join(_ESCAPES.get(c, c) for c in v) for v in row] for row in rows]
    return block_of(*("\t".join(row).encode() + b"\n" for row in fields))


def _texts(rows: list[Row]) -> list[Row]:
    """The rows after `split`."""
    block = _block(rows)
    columns = [spans.texts().to_pylist() for spans in split(block, len(rows[0]))]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_random_rows_come_back(seed: int) -> None:
    """Rows mix NULLs, empty texts, escapes and texts that look like them."""
    rng = random.Random(seed)
    width = rng.randrange(1, 6)
    rows = [
        tuple(rng.choice([None, "".join(rng.choices(_PIECES, k=rng.randrange(4)))]) for _ in range(width))
        for _ in range(rng.randrange(1, 300))
    ]
    assert _texts(rows) == rows


def test_rows_of_one_null_or_empty_column_are_not_lost() -> None:
    r"""An empty line is a row of one empty text, `\N` one of NULL."""
    rows: list[Row] = [(None,), ("",), ("a",), ("",), (None,)]
    assert _texts(rows) == rows


def test_a_large_value_is_whole() -> None:
    """A block grows to its largest row."""
    rows: list[Row] = [("1", "\t" * 3_000_000), ("2", "y")]
    assert _texts(rows) == rows


@pytest.mark.parametrize(
    ("messages", "columns"),
    [
        ([b"a\tb\n"], 1),
        ([b"a\tb\n"], 3),
        ([b"a\nb\n"], 1),
        ([b"a\n", b""], 1),
        ([b"a"], 1),
        ([b"a\\"], 1),
        ([b"a\\\n"], 1),
        ([b"a\tb"], 2),
        ([b"a\t", b"b\n"], 2),
    ],
)
def test_a_message_that_is_not_a_row_is_refused(messages: list[bytes], columns: int) -> None:
    """The message has too many or too few fields, holds two rows, or is cut off."""
    with pytest.raises(InvariantError, match="are not rows of"):
        split(block_of(*messages), columns)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    """A text that Arrow could not hold is an error, not a replacement character."""
    column = Column("v", Oid(25), -1, "text", "text", 1, identity=False)
    with pytest.raises(pa.ArrowInvalid):
        typed_batch(block_of(b"caf\xe9\n"), [column])


def test_a_table_without_columns_keeps_its_number_of_rows() -> None:
    """Each row is an empty line."""
    assert typed_batch(block_of(b"\n", b"\n", b"\n"), []).num_rows == 3
