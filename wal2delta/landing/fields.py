"""Strict reading of a JSON object's fields: each has its type, none is missing, none is left over.

Which fields a document has belongs to the document's own module; what a damaged document means belongs to its reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any, TypeVar

from wal2delta.lsn import Lsn
from wal2delta.names import TableName
from wal2delta.schema import SchemaVersion

T = TypeVar("T")
_PATH = re.compile(r"[A-Za-z0-9_%-][A-Za-z0-9._%-]*(/[A-Za-z0-9_%-][A-Za-z0-9._%-]*)*")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_INTEGER_LIMIT = 1 << 63


class Malformed(ValueError):  # noqa: N818  it says what the document is
    """The document is not what its format says; the message is half a sentence without values of rows."""


class Fields:
    """One JSON object. Every method raises Malformed where the field is missing or of another form.

    `end` raises it where a field was never asked for.
    """

    def __init__(self, document: dict[str, Any], place: str) -> None:
        self._document = document
        self._place = place
        self._seen: set[str] = set()

    @classmethod
    def parse(cls, data: bytes) -> Fields:
        """Read the bytes of a document."""
        try:
            document = json.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise Malformed(f"not a JSON document ({type(error).__name__}, {len(data)} bytes)") from None
        if not isinstance(document, dict):
            raise Malformed("not a JSON object")
        return cls(document, "")

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return name in self._document

    def value(self, name: str) -> Any:
        """The field as it is."""
        self._seen.add(name)
        if name not in self._document:
            raise Malformed(f"{self._place}{name} is missing")
        return self._document[name]

    def end(self) -> None:
        """Every field has been asked for."""
        rest = sorted(set(self._document) - self._seen)
        if rest:
            raise Malformed(f"{self._place}{rest[0][:40]} is not a field of this format")

    def text(self, name: str) -> str:
        """A string."""
        value = self.value(name)
        if not isinstance(value, str):
            raise Malformed(f"{self._place}{name} is not text")
        return value

    def integer(self, name: str) -> int:
        """An integer from 0 to 2**63 - 1."""
        value = self.value(name)
        if type(value) is not int or not 0 <= value < _INTEGER_LIMIT:
            raise Malformed(f"{self._place}{name} is not an integer from 0")
        return value

    def matching(self, name: str, form: re.Pattern[str]) -> str:
        """A string that `form` matches wholly."""
        value = self.text(name)
        if not form.fullmatch(value):
            raise Malformed(f"{self._place}{name} has not the form {form.pattern}")
        return value

    def one_of(self, name: str, allowed: Iterable[str]) -> str:
        """One of some words."""
        value = self.text(name)
        words = list(allowed)
        if value not in words:
            raise Malformed(f"{self._place}{name} is none of {', '.join(words)}")
        return value

    def lsn(self, name: str) -> Lsn:
        """An LSN's text."""
        try:
            return Lsn.parse(self.text(name))
        except ValueError:
            raise Malformed(f"{self._place}{name} is not an LSN") from None

    def path(self, name: str) -> str:
        """A relative path that stays below its folder."""
        return self.matching(name, _PATH)

    def table(self, name: str) -> TableName:
        """A `TableName.key`."""
        try:
            return TableName.from_key(self.text(name))
        except ValueError:
            raise Malformed(f"{self._place}{name} is not a table's key") from None

    def time_us(self, name: str) -> int:
        """Microseconds since 1970 of an ISO 8601 text in UTC."""
        text = self.matching(name, _TIME)
        try:
            time = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
        except ValueError:
            raise Malformed(f"{self._place}{name} is not a time") from None
        since = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    def schema_version(self, name: str) -> SchemaVersion:
        """A `SchemaVersion.to_json()`."""
        value = self.value(name)
        try:
            return SchemaVersion.from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Malformed(f"{self._place}{name} is not a schema version") from None

    def object(self, name: str) -> Fields:
        """An object's own fields."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise Malformed(f"{self._place}{name} is not an object")
        return Fields(value, f"{self._place}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self.value(name)
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise Malformed(f"{self._place}{name} is not a list of objects")
        return [Fields(v, f"{self._place}{name}[{i}].") for i, v in enumerate(value)]

    def optional(self, name: str, read: Callable[[], T]) -> T | None:
        """None where the field is null, else what `read` makes of it."""
        return None if self.value(name) is None else read()
