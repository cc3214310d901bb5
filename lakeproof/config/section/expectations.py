"""Expectations of a table in the configuration: a list in the file itself, or a suite as Great Expectations writes it.

Checking them does not belong here (`lakeproof.commands.expect`), nor knowing what each type means, which Great Expectations
itself does when they are checked. A file is read when the configuration is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

_KEYS = frozenset({"type", "kwargs", "severity", "name"})
_SEVERITIES = ("error", "warn")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TYPE = re.compile(r"expect_[a-z0-9_]+")
# Great Expectations' own words, and the one that files without any mean.
_SUITE_SEVERITIES = {"critical": "error", "warning": "warn", "info": "warn"}
# What a suite's file may have for the batch that it was made with.
_BATCH = "batch_id"
_SUITE_BYTES_MAX = 4 << 20


def valid_expectation(value: object) -> object:
    """Check the form of one of Great Expectations' entries."""
    if not isinstance(value, dict) or not value.keys() <= _KEYS or "type" not in value:
        raise ValueError("must be {type: expect_…, kwargs: {…}}, with severity (warn or error) and name if wanted")
    if not isinstance(value["type"], str) or not _TYPE.fullmatch(value["type"]):
        raise ValueError("type must be the name of an expectation: expect_…")
    if value.get("severity", "error") not in _SEVERITIES:
        raise ValueError("severity must be warn or error")
    if "name" in value and not (isinstance(value["name"], str) and _NAME.fullmatch(value["name"])):
        raise ValueError("name must be a letter, then at most 99 letters, digits and _")
    if isinstance(value.get("kwargs", {}), dict):
        return value
    raise ValueError("kwargs must be a mapping")


def read_expectations(value: object, folder: Path) -> object:
    """Return the entries of a suite's file if `value` names one, relative to `folder`; anything else as it is.

    Raises ValueError, as a phrase, for a file that is none.
    """
    if not isinstance(value, str):
        return value
    path = folder / value
    try:
        if path.stat().st_size > _SUITE_BYTES_MAX:
            raise ValueError(f"names {value}, which is larger than {_SUITE_BYTES_MAX} bytes")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"names {value}, which can't be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"names {value}, which is not JSON") from None
    entries = document.get("expectations") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError(  # noqa: TRY004  pydantic's word for a mistake of the file
            f"names {value}, which is no suite of Great Expectations: it has no list `expectations`"
        )
    return [_entry(entry, f"{value}: expectation {number}") for number, entry in enumerate(entries, 1)]


def _entry(entry: object, place: str) -> dict[str, object]:
    """Return one entry of a suite as the configuration has it; what only Great Expectations' own pages need is left out."""
    if not isinstance(entry, dict):
        raise ValueError(f"names {place}, which is not a mapping")  # noqa: TRY004  as above
    kwargs = entry.get("kwargs", {})
    severity = entry.get("severity", "critical")
    if not isinstance(severity, str) or severity not in _SUITE_SEVERITIES:
        raise ValueError(f"names {place}, whose severity is none of {', '.join(_SUITE_SEVERITIES)}")
    # Before version 1 the key had another name.
    kind = entry.get("type", entry.get("expectation_type"))
    result = {"type": kind, "kwargs": kwargs, "severity": _SUITE_SEVERITIES[severity]}
    try:
        valid_expectation(result)
    except ValueError as error:
        raise ValueError(f"names {place}, which {error}") from None
    return result | {"kwargs": {name: argument for name, argument in kwargs.items() if name != _BATCH}}
