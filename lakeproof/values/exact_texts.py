r"""The exact form of a row's values, from the lake's Arrow arrays: the texts that digests of rows are computed from.

The same forms are in PostgreSQL's SQL in `lakeproof.proof.source.form` and in Spark in `lakeproof.lake.rows.columns`, which
says how a form is made; one suite over all kinds holds the three equal. Reading the arrays does not belong here.

A text of the lake is used as its octets, which damage may have made no UTF-8. Texts of values without the hidden ones
belong to `forms_in_arrow.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.cast import unheld_pattern
from lakeproof.values.exact_kinds import END, NULL_FORM, is_ended, key_columns
from lakeproof.values.forms_in_arrow import Part, flags_of, joined, octets_of, texts_of
from lakeproof.values.md5 import Bits, digest_bits
from lakeproof.values.types import KINDS, kind_of

_WRONG = NULL_FORM.encode()


@dataclass(frozen=True, slots=True)
class HiddenTexts:
    """The exact texts of a batch's `_lp_text`: by attribute number, those of the rows that have one."""

    by_attnum: Mapping[str, Mapping[int, str]]

    @classmethod
    def of(cls, texts: pa.Array | None) -> HiddenTexts:
        """Read a batch's `_lp_text`, None if it has none; what is no JSON object has no text, as for Spark."""
        by_attnum: dict[str, dict[int, str]] = {}
        if texts is None or texts.null_count == len(texts):
            return cls(by_attnum)
        for row in np.flatnonzero(flags_of(texts)).tolist():
            for name, text in _entries(texts[row]).items():
                if text is not None:
                    shown = text if isinstance(text, str) else json.dumps(text, separators=(",", ":"))
                    by_attnum.setdefault(name, {})[row] = shown
        return cls(by_attnum)

    def beside(self, column: Column) -> Mapping[int, str]:
        """Return the texts of a column's values, by row; none of a kind whose type holds every value."""
        if column.attnum <= 0 or kind_of(column).holds_every_value:
            return {}
        return self.by_attnum.get(str(column.attnum), {})


def row_bits(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> Bits:
    """Return the first 60 bits of each row's digest, as a proof has it: instants of a table with a key by their octets."""
    return digest_bits(_row_parts(version, columns, hidden, by_octets=not version.is_bag), rows)


def row_digests(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> pa.Array:
    """Return each row's digest, 32 hexadecimal digits: a bag's `_lp_key`."""
    parts = _row_parts(version, columns, hidden, by_octets=False)
    texts = joined(parts).cast(pa.binary()).to_pylist() if parts else [b""] * rows
    return pa.array([hashlib.md5(text, usedforsecurity=False).hexdigest() for text in texts], pa.string())


def key_texts(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts) -> pa.Array:
    """Return the framed exact text of each row's key: the `_lp_key` of a table with a key that has one."""
    return joined(_key_parts(version, columns, hidden))


def key_bits(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> Bits:
    """Return the first 60 bits of the digest of each row's key."""
    return digest_bits(_key_parts(version, columns, hidden), rows)


def _row_parts(
    version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, *, by_octets: bool
) -> list[Part]:
    """Return what the texts of rows are joined from; `by_octets`: instants are eight octets, which cost less than texts."""
    parts: list[Part] = []
    for column in version.columns:
        values, kind = columns[column.name], kind_of(column)
        if by_octets and kind.source_octets is not None:
            parts += _ended(octets_of(values), column, hidden)
        elif is_ended(column):
            parts += _ended(texts_of(values, kind), column, hidden)
        else:
            parts += _framed(exact_texts(column, values, hidden))
    return parts


def _key_parts(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts) -> list[Part]:
    parts: list[Part] = []
    for column in key_columns(version):
        parts += _framed(exact_texts(column, columns[column.name], hidden))
    return parts


def exact_texts(column: Column, values: pa.Array, hidden: HiddenTexts) -> pa.Array:
    """Return the exact texts of a column's values, NULL for NULL."""
    return _with_hidden(texts_of(values, kind_of(column)), column, hidden.beside(column))


def warm_up_exact_texts() -> None:
    """Run the loops once, so that no row waits for the compiler."""
    digest_bits([texts_of(pa.array([Decimal("0.1")]), KINDS["numeric"]), END], 1)


def _framed(texts: pa.Array) -> list[Part]:
    """Return `<octets>:<text>`, or `~` for NULL."""
    sizes = pc.binary_length(texts).cast(pa.string())
    if not texts.null_count:
        return [sizes, ":", texts]
    return [pc.fill_null(joined([sizes, ":", texts]), NULL_FORM)]


def _ended(texts: pa.Array, column: Column, hidden: HiddenTexts) -> list[Part]:
    """Return `<text>|`, NULL as `|`; a hidden text that the kind can't have does not look like another row's values."""
    beside = {row: text.replace(END, NULL_FORM) for row, text in hidden.beside(column).items()}
    texts = _with_hidden(texts, column, beside, hidden.beside(column))
    return [pc.fill_null(texts, "") if texts.null_count else texts, END]


def _with_hidden(
    texts: pa.Array, column: Column, beside: Mapping[int, str], read: Mapping[int, str] | None = None
) -> pa.Array:
    """Put hidden texts where the value is NULL and the type can't hold them; any other gives a form that no value has.

    `beside` are the texts to put, `read` the same as they were read.
    """
    if not beside:
        return texts
    rows = sorted(beside)
    hidden = [(read or beside)[row] for row in rows]
    typed = texts.take(pa.array(rows)).cast(pa.binary()).to_pylist()
    put = []
    for row, value, proper in zip(rows, typed, _are_proper(column, hidden), strict=True):
        text = beside[row].encode(errors="surrogatepass")
        put.append(text if value is None and proper else b"".join((_WRONG, value or b"", _WRONG, text)))
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts.cast(pa.binary()), pa.array(mask), pa.array(put, pa.binary())).view(pa.string())


def _are_proper(column: Column, texts: Sequence[str]) -> list[bool]:
    """Return which texts are of values that the column's type does not hold."""
    pattern = unheld_pattern(column)
    if pattern is None:
        return [False] * len(texts)
    array = pa.array([text.encode(errors="replace") for text in texts], pa.binary()).cast(pa.string())
    return [bool(each) for each in pc.match_substring_regex(array, pattern).to_pylist()]


def _entries(text: pa.Scalar) -> Mapping[str, object]:
    try:
        entries = json.loads(text.as_buffer().to_pybytes())
    except ValueError:
        return {}
    return entries if isinstance(entries, dict) else {}
