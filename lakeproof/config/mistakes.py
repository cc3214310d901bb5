"""Mistakes in the configuration file: each with its line, and all of them as one error.

`document` (the YAML), `model` (values and limits) and `load` (what must fit together) find them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakeproof.errors import ConfigError, manual
from lakeproof.names import TableName

# The keys and list indices that lead to a value, from the top of the document.
KeyPath: TypeAlias = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LIMITS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_TYPES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping (key: value)",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "model_type": "must be a mapping (key: value)",
    "path_type": "must be a text",
    "string_type": "must be a text (put quotes around it)",
    "tuple_type": "must be a list",
}


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake: its line (from 1; 0 if there is none), its dotted path, and what is wrong."""

    line: int
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class ConfigFileError(ConfigError):
    """Every mistake of one file, in the order of its lines."""

    def __init__(self, file: str, mistakes: Iterable[Mistake]) -> None:
        self.file = file
        self.mistakes = tuple(sorted(set(mistakes)))
        reason = "; ".join(f"{self._line(m)}{m}" for m in self.mistakes)
        super().__init__(
            file,
            reason,
            f"correct the file (its keys: {manual('The configuration: `lakeproof.yaml`', 'The top level')})",
        )

    def lines(self) -> list[str]:
        """One line per mistake: `lakeproof.yaml:7: sources.shop.drain.flush_rows: must be at least 1`."""
        return [f"{self.file}:{m.line}: {m}" if m.line else f"{self.file}: {m}" for m in self.mistakes]

    @staticmethod
    def _line(mistake: Mistake) -> str:
        return f"line {mistake.line}: " if mistake.line else ""


def dotted(path: KeyPath) -> str:
    """Return a path for people, `sources.shop.table."shop.orders".key[0]`: keys with odd characters are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (
                part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            )
    return text


def nearest(name: str, existing: Iterable[str]) -> str | None:
    """Return the name that was probably meant, None if none is near."""
    return next(iter(difflib.get_close_matches(name, sorted(existing), n=1, cutoff=0.6)), None)


def table_hint(table: TableName, existing: Iterable[TableName], otherwise: str) -> str:
    """Return a question for the table that was probably meant, or `otherwise`."""
    near = nearest_table(table, existing)
    return otherwise if near is None else f"did you mean {near}?"


def nearest_table(table: TableName, existing: Iterable[TableName]) -> TableName | None:
    """Return the table that was probably meant: a schema that is right makes no other name look right."""
    tables = sorted(existing)
    schema = nearest(table.schema, {t.schema for t in tables})
    name = None if schema is None else nearest(table.name, (t.name for t in tables if t.schema == schema))
    if schema is not None and name is not None:
        return TableName(schema, name)
    elsewhere = [t for t in tables if t.name == table.name]
    return elsewhere[0] if len(elsewhere) == 1 else None


def hint(name: str, existing: Iterable[str]) -> str:
    """Return a question for the nearest existing name, or all of them."""
    names = sorted(existing)
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"known here: {', '.join(names)}"


def unknown_key(key: str, existing: Iterable[str]) -> str:
    """Return the phrase for a key that does not exist."""
    return f"unknown key; {hint(key, existing)}"


def explain(error: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return a pydantic error as a phrase; `keys` are those of its section. Never repeats the value."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _LIMITS:
        name, phrase = _LIMITS[kind]
        return f"{phrase} {context[name]}"
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "extra_forbidden":
        return unknown_key(str(error["loc"][-1]), keys)
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    if kind in ("too_long", "missing_argument", "unexpected_positional_argument"):
        return f"must have {context.get('max_length', 'fewer')} entries"
    if kind == "value_error":
        return str(context["error"])
    return str(error["msg"])
