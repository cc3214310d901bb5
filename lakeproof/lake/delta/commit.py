"""The values of one commit to a Delta table: the request, its identity and hints, a new table's properties, the result.

Making the commit belongs to `apply`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from lakeproof.lake.columns import needs_mapping, quoted
from lakeproof.lake.delta.log import DeltaCommit
from lakeproof.lake.delta.reader_features import VECTORS_ENABLED
from lakeproof.lake.records.documents import Intent
from lakeproof.names import TableName

if TYPE_CHECKING:
    from lakeproof.lake.rows.change import NetChange

# A commit's checkpoint costs as much as five small commits; one in 10 is Delta's default.
CHECKPOINT_INTERVAL = 50
# Delta refuses a version because of its age, even if all its files exist, and forgets it because of its age, too: an idle
# table at the version that a cut names. What a kept cut names stays; only `files` removes the rest, and nothing else does.
_KEEP = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


class Unsupported(Exception):  # noqa: N818  not an error: another way takes over
    """A table or change that a way of committing does not support; nothing has been written."""


class Engine(Enum):
    """Who writes tables: this process for whatever it can and Spark for the rest, or Spark for all."""

    AUTO = "auto"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """The identity that a commit carries."""

    app_id: str
    number: int
    user_metadata: str

    def is_in(self, commit: DeltaCommit) -> bool:
        """True if a commit of the table's log is this one."""
        return commit.txns.get(self.app_id) == self.number

    def is_followed_by(self, commit: DeltaCommit) -> bool:
        """True if a commit has a later number: then the lake's cycles are older than its table."""
        return commit.txns.get(self.app_id, self.number) > self.number


def commit_of_cycle(source: str, intent: Intent, layer: str, table: TableName) -> CommitInfo:
    """Return the identity of a table's commit in a cycle; `layer` is `history` or `current`."""
    app = f"lakeproof/{source}/{intent.incarnation}/{layer}/{table.key}"
    metadata = {"cycle": intent.number, "incarnation": intent.incarnation, "position": str(intent.end_lsn)}
    return CommitInfo(app, intent.number, json.dumps(metadata, sort_keys=True))


def number_of(commit: DeltaCommit, app_prefix: str, number: str = "cycle") -> int | None:
    """Return the number that one of our commits carries, None if the commit is somebody else's.

    It stands beside an application id with this prefix, or in the metadata under the name `number` (OPTIMIZE and RESTORE
    have no application id).
    """
    numbers = [value for app, value in commit.txns.items() if app.startswith(app_prefix)]
    if numbers:
        return max(numbers)
    try:
        metadata = json.loads(commit.user_metadata or "null")
    except ValueError:
        return None
    is_ours = isinstance(metadata, dict) and ("view" in metadata or "incarnation" in metadata)
    value = metadata.get(number) if is_ours else None
    return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The Delta properties of a new table, beside those that every table has.

    `statistics` are the columns whose least and greatest values stand in each file's entry in the log; if there are none,
    Delta takes the table's first 32. `portable`: the table is written without vectors and column mapping, so its names are
    such as Parquet takes.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    portable: bool = False

    def options(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the writer's options; deletion vectors spare rewriting rows that do not change."""
        mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(columns) and not self.portable else {}
        return {
            VECTORS_ENABLED: "false" if self.portable else "true",
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            **_KEEP,
            **mapping,
            **({"delta.dataSkippingStatsColumns": ",".join(map(quoted, self.statistics))} if self.statistics else {}),
            **self.properties,
        }


@dataclass(frozen=True, slots=True)
class Hints:
    """Facts about a change that make its commit cheaper, and never change the result.

    `bounds`: the least and the greatest value of a single integer key. `broadcast`: the whole change fits into the memory of
    each task. `max_keys`: the change deletes at most so many keys; None if that is not known.
    """

    bounds: tuple[int, int] | None = None
    broadcast: bool = False
    max_keys: int | None = None


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit to the Delta table at `path`: its change, its identity, and the version to make it on.

    `create`: the new table's properties, if there is none yet (None: a missing table is an error). `expected_version`: the
    version that the table should have; None: whichever is the newest. `new_columns`: a change that truncates brings its
    own columns in place of the table's.
    """

    path: str
    change: NetChange
    info: CommitInfo
    hints: Hints = NO_HINTS
    create: TableSpec | None = None
    expected_version: int | None = None
    new_columns: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """The table's version now, and the rows that this commit inserted and deleted.

    If nothing was deleted or inserted there is no commit, and the version is the old one.
    """

    version: int
    inserted: int
    deleted: int
