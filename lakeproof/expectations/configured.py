"""The expectations of the configuration as values, each with a name that is unique in its table.

Evaluating them does not belong here (`evaluate.py`): Dagster makes a check of each when it loads, without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lakeproof.config.model import SourceConfig
from lakeproof.names import TableName

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)
COLUMN_ARGUMENTS = ("column", "column_A", "column_B")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One entry of `expectations` in the configuration, under its own name."""

    name: str
    type: str
    kwargs: Mapping[str, Any]
    severity: Literal["error", "warn"]

    @property
    def columns(self) -> list[str]:
        """The columns that it names; none if it is about the whole table."""
        named = [str(self.kwargs[key]) for key in COLUMN_ARGUMENTS if key in self.kwargs]
        return named + [str(name) for name in self.kwargs.get("column_list", ())]


def expectations(source: SourceConfig, table: TableName) -> list[Expectation]:
    """Return the configured expectations of a table, each with a unique name, its own or one of type and columns."""
    result: list[Expectation] = []
    names: set[str] = set()
    for entry in source.table_config(table).expectations:
        kwargs = dict(entry.get("kwargs", {}))
        warns = str(entry.get("severity", "error")) == "warn"
        unnamed = Expectation("", str(entry["type"]), kwargs, "warn" if warns else "error")
        by_type = _NOT_IN_NAMES.sub("_", "__".join([unnamed.type, *unnamed.columns])).strip("_")
        base = str(entry.get("name", by_type))
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.add(name)
        result.append(replace(unnamed, name=name))
    return result
