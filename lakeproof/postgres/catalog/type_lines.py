"""A catalog type as one line of text: a fingerprint keeps it, so values can be read after the type is dropped.

Reading types does not belong here (`published.py`), nor does their form in the lake (`lakeproof.values.types`).
"""

from __future__ import annotations

import json
from typing import Any

from lakeproof.names import Oid
from lakeproof.values.catalog_kinds import CatalogType


def type_line(type_: CatalogType) -> str:
    """Return the type, with its element, as JSON."""
    return json.dumps(_fields(type_), separators=(",", ":"), ensure_ascii=False)


def type_of_line(line: str) -> CatalogType:
    """Parse the form of `type_line`; raise ValueError for another text."""
    try:
        return _type(json.loads(line))
    except (TypeError, ValueError) as error:
        raise ValueError(f"it is no line of a type ({type(error).__name__})") from None


def _fields(type_: CatalogType) -> list[Any]:
    element = None if type_.element is None else _fields(type_.element)
    base = [int(type_.base_oid), type_.base_typmod, type_.base_typtype]
    return [int(type_.oid), type_.schema, type_.name, type_.typtype, *base, element]


def _type(fields: list[Any]) -> CatalogType:
    oid, schema, name, typtype, base_oid, base_typmod, base_typtype, element = fields
    below = None if element is None else _type(element)
    return CatalogType(Oid(oid), schema, name, typtype, Oid(base_oid), base_typmod, base_typtype, below)
