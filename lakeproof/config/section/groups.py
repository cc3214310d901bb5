"""Reads the section `groups`: sources of one database that are compacted together.

Connecting does not belong here: connection strings are compared as far as they say where they lead. A compaction compares
what the landings have recorded (`lakeproof.lake.planning.group_position`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakeproof.config.document import YamlDocument
from lakeproof.config.mistakes import unknown_key
from lakeproof.config.model import SourceConfig
from lakeproof.config.secret import Dsn
from lakeproof.config.values import NAME_PATTERN

Sources = Mapping[str, SourceConfig | None]


def read_groups(document: YamlDocument, value: object, sources: Sources) -> dict[str, tuple[str, ...]]:
    """Return the groups with their sources; every mistake is added to `document`."""
    if value is not None and not isinstance(value, dict):
        document.add(("groups",), "must be a mapping (key: value)")
        return {}
    groups: dict[str, tuple[str, ...]] = {}
    for name, listed in (value or {}).items():
        path = ("groups", name)
        if not re.fullmatch(NAME_PATTERN, name):
            document.add(path, "is not a name: a small letter, then at most 52 small letters, digits and _")
        if name in sources:
            document.add(path, "is the name of a source; give the group another one")
        if not isinstance(listed, list) or len(listed) < 2 or not all(isinstance(source, str) for source in listed):
            document.add(path, "must be a list of two sources or more: {shop: [shop_a, shop_b]}")
            continue
        for i, source in enumerate(listed):
            mistake = _mistake(source, listed[:i], groups, sources)
            if mistake is not None:
                document.add((*path, i), mistake)
        groups[name] = tuple(listed)
    return groups


def _mistake(source: str, before: list[str], groups: Mapping[str, tuple[str, ...]], sources: Sources) -> str | None:
    """Return what is wrong with a source that follows those of `before` in its group."""
    if source not in sources:
        return f"{source} is no source; {unknown_key(source, sources).removeprefix('unknown key; ')}"
    if source in before:
        return f"names {source} twice"
    other = next((group for group, members in groups.items() if source in members), None)
    if other is not None:
        return f"{source} is in the group {other} already; a source is in one group at most"
    first = sources.get(before[0]) if before else None
    second = sources[source]
    if first is None or second is None or not _differ(first.dsn, second.dsn):
        return None
    return f"{source} has another server or database in its dsn than {before[0]}; a group is of one database"


def _differ(one: object, other: object) -> bool:
    """True if two connection strings say that they lead to different databases; a secret is not read for it."""
    if not isinstance(one, Dsn) or not isinstance(other, Dsn) or one.database is None or other.database is None:
        return False
    return (one.server, one.database) != (other.server, other.database)
