"""A lake's JSON documents as frozen dataclasses: pydantic reads them strictly, and they are written canonically.

A document is a dataclass that inherits `Document`, an object inside it one that inherits `Part`. Their annotations are the
format: each field has exactly its JSON type (no `"7"` or `7.0` for 7, no 1 for true), and a document has all of the fields
and no other. A default is for the code that makes a value; it never fills in a field that a document lacks. A rule between
fields is a `model_validator(mode="after")`. Whatever is wrong becomes one LakeError, which names the first field that is,
and never repeats its value.

Pydantic's own JSON output is not used, since its keys are not sorted; nor is its lax mode, which would let "7" in for 7.
Three documents are written by hand, and their modules say why: a schema version, the catalog's fingerprint and a snapshot's
progress.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, core_schema

from lakeproof.errors import LakeError
from lakeproof.storage.store import Store, get_or_none
from lakeproof.storage.times import time_of

P = TypeVar("P", bound="Part")
D = TypeVar("D", bound="Document")
_REMEDY = "restore it from a backup: documents are never changed after they are written"
_TEXT_MAX = 80
# A longer list of words helps nobody.
_WORDS_MAX = 120
# Made when a class is first used: each takes about a millisecond.
_adapters: dict[type[Any], TypeAdapter[Any]] = {}
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_REASONS = {
    "missing": "is missing",
    "unexpected_keyword_argument": "is not a field of this format",
    "string_type": "is not text",
    "string_pattern_mismatch": "does not have the form {pattern}",
    "int_type": "is not an integer",
    "greater_than_equal": "is not an integer from {ge}",
    "less_than": "is an integer beyond every limit",
    "bool_type": "is neither true nor false",
    "tuple_type": "is not a list",
    "dict_type": "is not an object",
    "dataclass_type": "is not an object",
    "enum": "is none of {expected}",
    "literal_error": "is none of {expected}",
    "too_short": "has too few items",
    "too_long": "has too many items",
    "value_error": "{error}",
}


def _time(text: str) -> str:
    try:
        is_time = time_of(text).tzinfo is not None
    except ValueError:
        is_time = False
    if not is_time:
        raise ValueError("is not a time")
    return text


# A time that somebody reckons with; elsewhere it is a text for people.
TimeField = Annotated[str, AfterValidator(_time)]


def canonical(document: dict[str, Any]) -> bytes:
    """Return UTF-8 JSON with sorted keys, no spaces and one trailing newline."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class Part:
    """An object inside a document; a field in `ABSENT_IF_NONE` is left out instead of being null."""

    __slots__ = ()
    ABSENT_IF_NONE: ClassVar[frozenset[str]] = frozenset()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema: Any = handler.resolve_ref_schema(handler(source))
        arguments = schema
        while arguments["type"] != "dataclass-args":
            arguments = arguments["schema"]
        for field in arguments["fields"]:
            if field["schema"]["type"] == "default" and field["name"] not in cls.ABSENT_IF_NONE:
                field["schema"] = field["schema"]["schema"]
        if issubclass(cls, Document):
            literal = core_schema.literal_schema([cls.FORMAT])
            arguments["fields"].append(core_schema.dataclass_field("format", literal, init_only=True))
            arguments["collect_init_only"] = True
        return schema  # type: ignore[no-any-return]  # the handler's own schema, changed in place

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return _adapter(type(self)).dump_python(self, mode="json", by_alias=True)  # type: ignore[no-any-return]  # of an Any

    @classmethod
    def from_json(cls: type[P], entry: Any, thing: str, place: str) -> P:
        """Do the inverse of `to_json` for an object of the document `thing`; raise LakeError naming the damaged field."""
        return _validate(cls, canonical(entry), thing, place)


class Document(Part):
    """A whole document; `FORMAT` is the value of its field `format`, `REMEDY` what to do if it is damaged."""

    __slots__ = ()
    FORMAT: ClassVar[str]
    REMEDY: ClassVar[str] = _REMEDY

    def to_bytes(self) -> bytes:
        """Return the document's bytes."""
        return canonical({"format": self.FORMAT, **self.to_json()})

    @classmethod
    def from_bytes(cls: type[D], data: bytes, thing: str) -> D:
        """Do the inverse of `to_bytes`; raise LakeError naming `thing` and the damaged field."""
        return _validate(cls, data, thing)

    @classmethod
    def read(cls: type[D], store: Store, key: str) -> D | None:
        """Return the document under a key, None if there is none; raise LakeError if it is damaged."""
        data = get_or_none(store, key)
        return None if data is None else cls.from_bytes(data, store.url(key))


def _adapter(kind: type[Part]) -> TypeAdapter[Any]:
    adapter = _adapters.get(kind)
    if adapter is None:
        adapter = _adapters[kind] = TypeAdapter(kind)
    return adapter


def _validate(kind: type[P], data: bytes, thing: str, place: str = "") -> P:
    try:
        return _adapter(kind).validate_json(data)  # type: ignore[no-any-return]  # of this kind
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        remedy = kind.REMEDY if issubclass(kind, Document) else _REMEDY
        other = next((m for m in mistakes if m["loc"] == ("format",)), None)
        if other is not None and issubclass(kind, Document):
            actual = None if other["type"] == "missing" else other["input"]
            reason = f"has format {str(actual)[:40]!r}, not {kind.FORMAT!r}"
            raise LakeError(thing, reason, f"use the lakeproof that wrote it, or {remedy}") from None
        raise LakeError(thing, f"it is damaged: {_describe(mistakes[0], place, len(data))}", remedy) from None


def _describe(mistake: ErrorDetails, place: str, size: int) -> str:
    """Return a mistake as half a sentence: `tables[public/orders].rows is missing`."""
    context = mistake.get("ctx", {})
    if mistake["type"] == "json_invalid":
        return f"not a JSON document ({context['error']}, {size} bytes)"
    for part in mistake["loc"]:
        if part != "[key]":
            text = str(part)[:_TEXT_MAX]
            is_name = isinstance(part, str) and _IDENTIFIER.fullmatch(text)
            place += (f".{text}" if place else text) if is_name else f"[{text}]"
    if mistake["type"] == "value_error" and not place:
        return str(context["error"])
    reason = _REASONS.get(mistake["type"], f"is refused ({mistake['type']})")
    # Pydantic quotes each word.
    words = context.get("expected", "").replace("'", "")
    if len(words) > _WORDS_MAX:
        reason = "is no word of this format"
    return f"{place or 'it'} {reason.format_map({**context, 'expected': words})}"
