"""A type of the catalog as one line of text, so that a fingerprint keeps how its values were read when it is gone.

Reading types belongs to `lakeproof.postgres.catalog_published`, what becomes of them in the lake to
`lakeproof.values.types`.
"""

from __future__ import annotations

import json
from typing import Any

from lakeproof.names import Oid
from lakeproof.values.types import CatalogType


def type_line(known: CatalogType) -> str:
    """The type, with its element, as JSON."""
    return json.dumps(_fields(known), separators=(",", ":"), ensure_ascii=False)


def type_of_line(line: str) -> CatalogType:
    """The inverse of `type_line`; raises ValueError for another text."""
    try:
        return _type(json.loads(line))
    except (TypeError, ValueError) as error:
        raise ValueError(f"it is no line of a type ({type(error).__name__})") from None


def _fields(known: CatalogType) -> list[Any]:
    element = None if known.element is None else _fields(known.element)
    base = [int(known.base_oid), known.base_typmod, known.base_typtype]
    return [int(known.oid), known.schema, known.name, known.typtype, *base, element]


def _type(fields: list[Any]) -> CatalogType:
    oid, schema, name, typtype, base_oid, base_typmod, base_typtype, element = fields
    below = None if element is None else _type(element)
    return CatalogType(Oid(oid), schema, name, typtype, Oid(base_oid), base_typmod, base_typtype, below)
