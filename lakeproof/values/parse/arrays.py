r"""Splits PostgreSQL's text of one-dimensional arrays into elements, for a whole column at once.

`cast.py` casts the elements. Nothing is done per element in Python: a regular expression classifies the texts, then a few
array operations over the joined bytes find the elements and remove quotes and escapes.

    {1,NULL,"a \"b\"","NULL"}          braces, commas and quotes outside of elements go, the byte after a backslash stays
    ^ ^    ^ ^^       ^ ^^    ^^
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

# PostgreSQL quotes an element that is empty, reads NULL, or contains one of these characters.
_QUOTED = r'"(?:[^"\\]|\\["\\])*"'
_PLAIN = r'[^{}",\\ \t\n\v\f\r]+'
_ELEMENT = f"(?:{_QUOTED}|{_PLAIN})"
_BOUNDS = r"(?:\[-?[0-9]+:-?[0-9]+\])+="
# RE2: `\A` and `\z` are the ends of the text.
_ONE_DIMENSION = rf"\A\{{(?:{_ELEMENT}(?:,{_ELEMENT})*)?\}}\z"
# Braces are not matched with each other: such a text is kept as it is, not split.
_OTHER = rf"\A(?:{_BOUNDS}\{{(?:{_ELEMENT}|[{{}},])*\}}|\{{\{{(?:{_ELEMENT}|[{{}},])*\}}\}})\z"
_NULL = np.frombuffer(b"NULL", np.uint8)


@dataclass(frozen=True, slots=True)
class Elements:
    """The arrays of a column: row i's elements are `texts[offsets[i]:offsets[i + 1]]`.

    `texts` is a string array, null for a NULL element. Rows that are NULL or not of one dimension have no elements: rows
    in `other` are arrays of another form (more dimensions, a lower bound that is not 1), rows in `unknown` are no arrays.
    """

    offsets: Ints
    texts: pa.Array
    other: Flags
    unknown: Flags


def split_arrays(texts: pa.Array) -> Elements:
    """Return the elements of arrays in PostgreSQL's output text (a string array, NULL for NULL)."""
    plain = _matches(texts, _ONE_DIMENSION)
    missing = texts.is_null().to_numpy(zero_copy_only=False)
    none = np.zeros(len(texts), np.bool_)
    if not (plain | missing).all():
        other = _matches(texts, _OTHER)
        unknown = ~(plain | other | missing)
        whole = pc.if_else(pa.array(plain), texts, "{}")
    else:
        other = unknown = none
        whole = pc.fill_null(texts, "{}") if texts.null_count else texts
    offsets, elements = _split(whole)
    return Elements(offsets, elements, other, unknown)


def joined_octets(texts: pa.Array) -> tuple[Octets, Ints, Ints]:
    """Return the joined bytes of a string array without nulls, and each text's start and length."""
    if len(texts) == 0:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    return data[bounds[0] : bounds[-1]], bounds[:-1] - bounds[0], np.diff(bounds)


def _matches(texts: pa.Array, pattern: str) -> Flags:
    matches: Flags = pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False)
    return matches


def _split(texts: pa.Array) -> tuple[Ints, pa.Array]:
    """Return offsets and elements of texts that are all of one dimension and not null."""
    data, start, sizes = joined_octets(texts)
    end = start + sizes
    dropped, separators = _structure(data)
    dropped[start] = dropped[end - 1] = True
    filled = end - start > 2
    begin = np.sort(np.concatenate((start[filled] + 1, separators + 1)))
    stop = np.sort(np.concatenate((end[filled] - 1, separators)))
    counts = np.searchsorted(separators, end) - np.searchsorted(separators, start) + filled
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return offsets, _texts(data, dropped, begin, stop)


def _structure(data: Octets) -> tuple[Flags, Ints]:
    """Return the bytes that belong to no element (except the rows' outer braces), and the separators' offsets."""
    quote = data == ord('"')
    comma = data == ord(",")
    if not quote.any():
        return comma.copy(), np.flatnonzero(comma)
    dropped = quote
    backslash = np.flatnonzero(data == ord("\\"))
    if backslash.size:
        # In a run of backslashes every second one escapes what follows it.
        head = np.concatenate(([True], np.diff(backslash) != 1))
        run = backslash[head][np.cumsum(head) - 1]
        escape = backslash[(backslash - run) % 2 == 0]
        quote[escape + 1] = False
        dropped = quote.copy()
        dropped[escape] = True
    inside = np.bitwise_xor.accumulate(quote.view(np.uint8)).view(np.bool_)
    separator = comma & ~inside
    return dropped | separator, np.flatnonzero(separator)


def _texts(data: Octets, dropped: Flags, begin: Ints, stop: Ints) -> pa.Array:
    """Return each element's bytes that are not dropped, null for a NULL without quotes."""
    count = len(begin)
    if count == 0:
        return pa.array([], pa.string())
    kept = ~dropped
    # What is between two elements is dropped, so an element's bytes are those up to the start of the next one.
    sizes = np.add.reduceat(kept, begin, dtype=np.int64)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    octets = data[kept]
    four = np.flatnonzero(stop - begin == len(_NULL))
    null = four[(data[begin[four][:, None] + np.arange(len(_NULL))] == _NULL).all(axis=1)]
    valid = None
    if null.size:
        bits = np.ones(count, np.bool_)
        bits[null] = False
        valid = pa.py_buffer(np.packbits(bits, bitorder="little"))
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.string(), count, [valid, offsets, pa.py_buffer(octets)], null_count=len(null))
