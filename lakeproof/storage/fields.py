"""Strict reading of a JSON object's fields: each has its type, and a missing one is never filled in.

The fields of a document do not belong here but in the document's own module; a subclass or the caller decides what a damaged
document means. Times are written here too, in the one form that is read back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion

T = TypeVar("T")
F = TypeVar("F", bound="Fields")
_PATH = re.compile(r"[A-Za-z0-9_%-][A-Za-z0-9._%-]*(/[A-Za-z0-9_%-][A-Za-z0-9._%-]*)*")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_INTEGER_LIMIT = 1 << 63


class Malformed(ValueError):  # noqa: N818  it says what the document is
    """The document does not have its format; the message is half a sentence without values of rows."""


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of a document; raise Malformed."""
    try:
        document = json.loads(data.decode("utf-8"))
        if _SURROGATE.search(data):
            # JSON can escape half a character, which is no text.
            json.dumps(document, ensure_ascii=False).encode()
    # ValueError also comes from an integer with more digits than Python reads.
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not a JSON document ({type(error).__name__}, {len(data)} bytes)") from None
    if not isinstance(document, dict):
        raise Malformed("not a JSON object")
    return document


def canonical(document: dict[str, Any]) -> bytes:
    """Return UTF-8 JSON with sorted keys, no spaces and one trailing newline."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def now_text() -> str:
    """Return the present time for `created_at`."""
    return text_of(datetime.now(timezone.utc))


def time_of(text: str) -> datetime:
    """Return the time of a document's text; Python 3.10 does not read the Z."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def time_text(us: int | None) -> str | None:
    """Return ISO 8601 in UTC with six decimals, from microseconds since 1970."""
    return None if us is None else text_of(_EPOCH + timedelta(microseconds=us))


def text_of(time: datetime) -> str:
    """Return a time in UTC as documents have it: ISO 8601 with six decimals and a Z."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


class Fields:
    """The fields of one JSON object, at `place` of its document.

    Every method raises the error of `damaged` if the field is missing or has another form; `end` raises it if a field was
    never read.
    """

    def __init__(self, doc: dict[str, Any], place: str = "") -> None:
        self.doc = doc
        self.place = place
        self._seen: set[str] = set()

    def damaged(self, name: str, reason: str) -> Exception:
        """Return the error about a field (the caller raises it)."""
        return Malformed(f"{self.place}{name} {reason}")

    def inner(self: F, doc: Any, name: str) -> F:
        """Return the fields of an object inside this one, at `name`."""
        if not isinstance(doc, dict):
            raise self.damaged(name, "is not an object")
        return type(self)(doc, self.place_of(name))

    def place_of(self, name: str) -> str:
        """Return the place of the object at `name`."""
        return f"{self.place}{name}."

    def has(self, name: str) -> bool:
        """True if the field exists."""
        return name in self.doc

    def value(self, name: str) -> Any:
        """Return the field as it is."""
        self._seen.add(name)
        if name not in self.doc:
            raise self.damaged(name, "is missing")
        return self.doc[name]

    def end(self) -> None:
        """Check that every field has been read."""
        rest = sorted(set(self.doc) - self._seen)
        if rest:
            raise self.damaged(rest[0][:40], "is not a field of this format")

    def text(self, name: str) -> str:
        """Return a string."""
        value = self.value(name)
        if not isinstance(value, str):
            raise self.damaged(name, "is not text")
        return value

    def count(self, name: str) -> int:
        """Return an integer from 0 to 2**63 - 1."""
        value = self.value(name)
        if type(value) is not int or not 0 <= value < _INTEGER_LIMIT:
            raise self.damaged(name, "is not an integer from 0")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.value(name)
        if not isinstance(value, bool):
            raise self.damaged(name, "is neither true nor false")
        return value

    def matching(self, name: str, form: re.Pattern[str]) -> str:
        """Return a string that `form` matches completely."""
        value = self.text(name)
        if not form.fullmatch(value):
            raise self.damaged(name, f"has not the form {form.pattern}")
        return value

    def one_of(self, name: str, allowed: Iterable[str]) -> str:
        """Return one of the `allowed` words."""
        value = self.text(name)
        words = list(allowed)
        if value not in words:
            raise self.damaged(name, f"is none of {', '.join(words)}")
        return value

    def lsn(self, name: str) -> Lsn:
        """Return an LSN from its text."""
        text = self.text(name)
        try:
            return Lsn.parse(text)
        except ValueError:
            raise self.damaged(name, "is not an LSN") from None

    def path(self, name: str) -> str:
        """Return a relative path that stays below its folder."""
        return self.matching(name, _PATH)

    def table(self, name: str) -> TableName:
        """Return a table name from a `TableName.key`."""
        text = self.text(name)
        try:
            return TableName.from_key(text)
        except ValueError:
            raise self.damaged(name, "is not a table's key") from None

    def time_us(self, name: str) -> int:
        """Return the microseconds since 1970 of an ISO 8601 text in UTC."""
        text = self.matching(name, _TIME)
        try:
            time = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
        except ValueError:
            raise self.damaged(name, "is not a time") from None
        since = time - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    def schema_version(self, name: str) -> SchemaVersion:
        """Return a schema version from a `SchemaVersion.to_json()`."""
        value = self.value(name)
        try:
            return SchemaVersion.from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self.damaged(name, "is not a schema version") from None

    def object(self: F, name: str) -> F:
        """Return an object's own fields."""
        return self.inner(self.value(name), name)

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        value = self.value(name)
        if not isinstance(value, list):
            raise self.damaged(name, "is not a list")
        return value

    def objects(self: F, name: str) -> list[F]:
        """Return a list of objects."""
        return [self.inner(item, f"{name}[{index}]") for index, item in enumerate(self.items(name))]

    def tables(self: F, name: str) -> dict[TableName, F]:
        """Return an object from table keys to objects."""
        return {t: self.inner(item, f"{name}[{t.key}]") for t, item in self.entries(name).items()}

    def entries(self, name: str) -> dict[TableName, Any]:
        """Return an object from table keys to values as they are."""
        result = {}
        for key, item in self.object(name).doc.items():
            try:
                result[TableName.from_key(key)] = item
            except ValueError:
                raise self.damaged(name, f"has {key[:80]!r}, which is not a table's key") from None
        return result

    def optional(self, name: str, read: Callable[[], T]) -> T | None:
        """Return None if the field is null, else the result of `read`."""
        return None if self.value(name) is None else read()
