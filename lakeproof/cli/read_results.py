"""The inverse of `results.to_json`: a command's result as the report that the command's function returned.

The reports do not belong here (`lakeproof.commands`). A field that the reader does not know is left alone, since the command
may have run with a newer lakeproof.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lakeproof.config.table_names import parse_table
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

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
    missing = [f.name for f in dataclasses.fields(kind) if f.name not in entries]
    if missing:
        raise ValueError(f"{place}.{missing[0]} is missing")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    return kind(**{name: _read(hints[name], entries[name], f"{place}.{name}", names) for name in fields})


def _of(kind: type[T], value: Any, place: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{place} is not what it should be ({kind.__name__})")
    return value
