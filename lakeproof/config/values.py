"""Checks single values of the configuration: names and amounts.

Each function takes a value and raises ValueError, as a phrase, if it is wrong; `model` has sections, keys and defaults.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated

from pydantic import AfterValidator, Field

# Source and view names are used in paths, in Dagster's keys and, for sources, in the slot's default name (lakeproof_<name>).
NAME_PATTERN = r"[a-z][a-z0-9_]{0,52}"
OCTETS_MAX = 63  # of an identifier in PostgreSQL, which cuts a longer one silently
_PRECISION_MAX = 38  # of a decimal in Spark
_OWNER = re.compile(r"team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|spark://\S+|k8s://\S+")
MASTERS = "local[*], spark://host:7077, k8s://https://host:6443 or yarn"
CONNECT = (
    "Spark Connect, whose client has no JVM of its own, and lakeproof asks the driver's JVM for plans and failures"
)


def number_text(value: object) -> object:
    """Return a number or a truth value as its text, anything else as it is."""
    # Spark takes texts; the file may have 4, 0.5 and true without quotes.
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError("is not a name: a small letter, then at most 52 small letters, digits and _")
    return value


def _column(value: str) -> str:
    if not value or "\x00" in value:
        raise ValueError("is not a column's name")
    return value


def _owner(value: str) -> str:
    if not _OWNER.fullmatch(value):
        raise ValueError("is not an owner: the form is team:data or an e-mail address")
    return value


def _pinned(value: tuple[int, int]) -> tuple[int, int]:
    precision, scale = value
    if not (1 <= precision <= _PRECISION_MAX and 0 <= scale <= precision):
        raise ValueError(
            f"must be [precision, scale] with 1 <= precision <= {_PRECISION_MAX} and 0 <= scale <= precision"
        )
    return value


def valid_publication(value: str) -> str:
    """Check a publication's name."""
    if not value or "\x00" in value or len(value.encode()) > OCTETS_MAX:
        raise ValueError(f"is not a publication's name: 1 to {OCTETS_MAX} octets")
    return value


def valid_slot(value: str) -> str:
    """Check a slot's name."""
    if not re.fullmatch(rf"[a-z0-9_]{{1,{OCTETS_MAX}}}", value):
        raise ValueError(f"is not a slot's name: 1 to {OCTETS_MAX} small letters, digits and _")
    return value


def different(values: tuple[object, ...]) -> tuple[object, ...]:
    """Check that no value is duplicated."""
    twice = sorted(str(value) for value, times in Counter(values).items() if times > 1)
    if twice:
        raise ValueError(f"names {', '.join(twice)} twice")
    return values


def valid_memory(value: str) -> str:
    """Return an amount of memory as the JVM takes it."""
    if not re.fullmatch(r"[1-9][0-9]*[kmgt]b?", value, re.IGNORECASE):
        raise ValueError("is not an amount of memory: the form is 2g or 512m")
    # Spark accepts 2GB as an amount, the JVM does not as a heap.
    return value.lower().removesuffix("b")


def valid_spark_conf(value: dict[str, str]) -> dict[str, str]:
    """Check that all keys are Spark settings."""
    for key in value:
        if not key.startswith("spark."):
            raise ValueError(f"holds {key[:60]!r}, which is no setting of Spark's (they begin with spark.)")
    return value


def valid_master(value: str) -> str:
    """Check a master's URL; Spark Connect's is refused with the reason."""
    if value.startswith("sc://"):
        raise ValueError(f"is {CONNECT}; name {MASTERS}")
    if not _MASTER.fullmatch(value):
        raise ValueError(f"is no master of Spark's; name {MASTERS}")
    return value


def valid_messages(value: object) -> object:
    """Check the selection of logical messages: none, or those with some prefixes."""
    if value is False:
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(prefix, str) for prefix in value):
        raise ValueError("must be false, or a list of the prefixes whose messages land")
    if any("\x00" in prefix for prefix in value):
        raise ValueError("holds what is no prefix of a message")
    return different(tuple(value))


Whole = Annotated[int, Field(strict=True)]
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True)]
Name = Annotated[Text, AfterValidator(_name)]
ColumnName = Annotated[Text, AfterValidator(_column)]
ColumnNames = Annotated[tuple[ColumnName, ...], AfterValidator(different)]
Owner = Annotated[Text, AfterValidator(_owner)]
Pinned = Annotated[tuple[Whole, Whole], AfterValidator(_pinned)]
