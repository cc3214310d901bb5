"""A command's result as a JSON document and as text for people; a report read back from the document.

The content of a result does not belong here (the modules of commands), nor events during the work (`progress`). A field that
`from_json` does not know is left alone, since the command may have run with a newer lakeproof.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lakeproof.config.table_names import parse_table, table_text
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.times import text_of_time

DONE = 0
DIFFERS = 1
REFUSED = 2
TRY_AGAIN = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command: the exit status, the result for programs (see `to_json`) and for people.

    `ends_by_signal`: a signal is the normal way to end this command, so it does not count as an interruption.
    """

    status: int
    document: Any
    text: str
    ends_by_signal: bool = False


def to_json(value: Any) -> Any:
    """Return `value` in JSON's types: an LSN as text, a table's name as `--tables` takes it; raises TypeError otherwise."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, TableName):
        return table_text(value)
    if isinstance(value, Lsn | Path):
        return str(value)
    if isinstance(value, datetime):
        return text_of_time(value.astimezone(timezone.utc))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(entry) for key, entry in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray | memoryview):
        entries = value if isinstance(value, Sequence) else sorted(value)
        return [to_json(entry) for entry in entries]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"no JSON form of a {type(value).__name__}")


def printable(text: str) -> str:
    """Return `text` without control characters: a name from a catalog must not move a terminal's cursor."""
    # A wide or an unbreakable space is a character of names and texts, and harmless.
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else "?" for c in text)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table for people: None is `-`; integers are right-aligned with thousands separators."""
    texts = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(_is_count(row[i]) or row[i] is None for row in rows) for i in range(len(headings))]
    widths = [max(len(line[i]) for line in [list(headings), *texts]) for i in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(headings), line(["-" * w for w in widths]), *(line(row) for row in texts)])


def format_bytes(count: int | None) -> str:
    """Return a number of bytes for people: `12.3 MB`, `-` for None. Units are powers of ten, as on disks."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


T = TypeVar("T")
# What `to_json` writes as text.
_TEXTS: Mapping[Any, Callable[[str], Any]] = {Lsn: Lsn.parse, TableName: parse_table}


def from_json(kind: type[T], value: Any, names: Mapping[str, type] | None = None) -> T:
    """Return `value`, in JSON's types, as a `kind`; raises ValueError naming the place of what does not fit.

    `names` are the types that a report's module imports for the type checker alone.
    """
    return cast("T", _read(kind, value, "the result", names or {}))


def _read(kind: Any, value: Any, place: str, names: Mapping[str, type]) -> Any:
    kind = getattr(kind, "__supertype__", kind)
    if kind is Any:
        return value
    if kind in _TEXTS:
        return _TEXTS[kind](_of(str, value, place))
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, place, names)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _read(_only(arguments, place), value, place, names)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{place} is none of {', '.join(map(str, arguments))}")
        return value
    if origin is not None and issubclass(origin, Mapping):
        entries = _of(dict, value, place).items()
        return {
            _read(arguments[0], key, place, names): _read(arguments[1], entry, f"{place}[{key}]", names)
            for key, entry in entries
        }
    if origin is tuple and Ellipsis not in arguments:
        items = _of(list, value, place)
        if len(items) != len(arguments):
            raise ValueError(f"{place} has {len(items)} entries, not {len(arguments)}")
        return tuple(
            _read(each, item, f"{place}[{i}]", names)
            for i, (each, item) in enumerate(zip(arguments, items, strict=True))
        )
    if origin is not None and issubclass(origin, Sequence):
        items = [_read(arguments[0], item, f"{place}[{i}]", names) for i, item in enumerate(_of(list, value, place))]
        return tuple(items) if origin is tuple else items
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return _of(kind, value, place)


def _only(arguments: Sequence[Any], place: str) -> Any:
    """Return the type of an optional value; a union of others has no one form in JSON."""
    others = [argument for argument in arguments if argument is not NoneType]
    if len(others) == 1:
        return others[0]
    if set(others) <= {int, float, str}:
        return Any
    raise ValueError(f"{place} has no one type")


def _dataclass(kind: Any, value: Any, place: str, names: Mapping[str, type]) -> Any:
    entries, hints = _of(dict, value, place), get_type_hints(kind, localns=dict(names))
    fields = [field.name for field in dataclasses.fields(kind)]
    for missing in (name for name in fields if name not in entries):
        raise ValueError(f"{place}.{missing} is missing")
    return kind(**{name: _read(hints[name], entries[name], f"{place}.{name}", names) for name in fields})


def _of(kind: type[T], value: Any, place: str) -> T:
    if kind is float and type(value) is int:
        # A function that returns a float may return a whole number.
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{place} is not what it should be ({kind.__name__})")
    return value
