"""The kinds of work that a cycle does on a table, each with what an intent has to name for it.

Doing the work is in `lakeproof.lake.cycle`. FORMAT.md says what the fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lakeproof.field_types import LsnField, NumberKey, Ordinal, SchemaField
from lakeproof.storage.document import Part


@dataclass(frozen=True, slots=True)
class Changes(Part):
    """The table's changes in the cycle's range."""

    kind: Literal["changes"] = "changes"


@dataclass(frozen=True, slots=True)
class Copy(Part):
    """A snapshot that enters, with the changes since; `folder` is its key in the store.

    `was_held`: it ends a hold, so changes before it may never have landed.
    """

    folder: str
    was_held: bool = False
    kind: Literal["copy"] = "copy"


@dataclass(frozen=True, slots=True)
class Created(Part):
    """The schema of a table that enters without a snapshot: it had no row where its changes begin. `was_held` as above."""

    version: SchemaField
    was_held: bool = False
    kind: Literal["created"] = "created"


@dataclass(frozen=True, slots=True)
class Keys(Part):
    """Some keys (`lakeproof.snapshot.copy.keyed_copy`): their rows become those of the source at the cycle's end."""

    folder: str
    kind: Literal["keys"] = "keys"


@dataclass(frozen=True, slots=True)
class SchemaChange(Part):
    """A schema that a table gets, and what its older rows read in columns that were added (attribute number → text).

    `called_for` is the consistent point of the snapshot that calls for it, None if the stream does.
    """

    version: SchemaField
    default_for_old_rows: Mapping[NumberKey, str] = field(default_factory=dict)
    called_for: LsnField | None = None
    kind: Literal["schema"] = "schema"


@dataclass(frozen=True, slots=True)
class Rebuild(Part):
    """Current is written anew from history."""

    kind: Literal["rebuild"] = "rebuild"


@dataclass(frozen=True, slots=True)
class Optimize(Part):
    """Small files are put together; `smallest_only`: no more of them than are too many."""

    smallest_only: bool = False
    kind: Literal["optimize"] = "optimize"


@dataclass(frozen=True, slots=True)
class Trim(Part):
    """History's rows below an ordinal become those that the table had then."""

    below: Ordinal
    kind: Literal["trim"] = "trim"


@dataclass(frozen=True, slots=True)
class Restore(Part):
    """What was archived of history comes back."""

    kind: Literal["restore"] = "restore"


Work: TypeAlias = Annotated[
    Changes | Copy | Created | Keys | SchemaChange | Rebuild | Optimize | Trim | Restore, Field(discriminator="kind")
]
