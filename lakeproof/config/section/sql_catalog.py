"""The section `catalog`: under which names a SQL catalog has the lake."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from lakeproof.config.section import Model

_SOURCE = "{source}"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _valid_name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise ValueError("must be letters, digits and _")
    return value


def _valid_pattern(value: str) -> str:
    if _NAME.fullmatch(value.replace(_SOURCE, "s")) is None:
        raise ValueError(f"must be letters, digits and _, beside {_SOURCE}")
    return value


Schema = Annotated[str, AfterValidator(_valid_name)]
SchemaPattern = Annotated[str, AfterValidator(_valid_pattern)]


class CatalogConfig(Model):
    """Schemas of a SQL catalog of Spark's, which are kept at the newest cut."""

    name: Schema | None = None
    """The catalog in Spark's session; none: the session's own."""
    current: SchemaPattern = _SOURCE
    """The schema for current tables; `{source}` is the source's name."""
    history: SchemaPattern | None = None
    """The schema for history tables; none: they get no names."""
    views: Schema | None = None
    """The schema for the lake's views; none: they get no names."""
    form: Literal["views", "tables"] = "views"
    """`views`: SQL views at the cut, without hidden columns. `tables`: external Delta tables, which have all columns
    and show their newest version, to other engines too."""

    def schemas(self, source: str) -> dict[Literal["current", "history"], str]:
        """Return the schema of each layer of a source that has names."""
        patterns: dict[Literal["current", "history"], str | None] = {"current": self.current, "history": self.history}
        return {layer: pattern.replace(_SOURCE, source) for layer, pattern in patterns.items() if pattern is not None}

    def taken_twice(self, sources: list[str]) -> str | None:
        """Return a schema that two layers, two sources or the views would share."""
        schemas = [schema for source in sources for schema in self.schemas(source).values()]
        schemas += [] if self.views is None else [self.views]
        folded = [schema.casefold() for schema in schemas]
        return next((name for name, key in zip(schemas, folded, strict=True) if folded.count(key) > 1), None)
