"""The words of the apply contract: a commit's identity, how a table is made, what goes and comes, and what became of it.

Who makes the commit belongs to `apply`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import DataFrame

from lakeproof.lake.columns import needs_mapping, quoted
from lakeproof.lake.delta.log import Commit
from lakeproof.lake.records.documents import Intent
from lakeproof.names import TableName

# A commit's checkpoint costs as much as five small commits; one in 10 is Delta's default.
CHECKPOINT_INTERVAL = 50
# The session's setting that a commit takes its `userMetadata` from, where no writer's option gives it.
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# `auto`: deletion vectors in one commit where that is known to work, else MERGE; `merge`: always MERGE.
Make = Literal["auto", "merge"]
# Delta refuses a version by its own age, though all its files are there, and forgets it by its age too: an idle table at the
# version that a cut names. What a kept cut names stays; everything else is removed by `delta_files`, and by nothing else.
_KEEP = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What a commit says of itself."""

    app_id: str
    number: int
    user_metadata: str

    def is_in(self, commit: Commit) -> bool:
        """Whether a commit of the table's log is this one."""
        return commit.txns.get(self.app_id) == self.number

    def is_followed_by(self, commit: Commit) -> bool:
        """Whether a commit is of a later number: the lake's cycles are older than its table then."""
        return commit.txns.get(self.app_id, self.number) > self.number


def commit_of_cycle(source: str, intent: Intent, layer: str, table: TableName) -> CommitInfo:
    """The identity of a table's commit in a cycle; `layer` is `history` or `current`."""
    app = f"lakeproof/{source}/{intent.incarnation}/{layer}/{table.key}"
    told = {"cycle": intent.number, "incarnation": intent.incarnation, "position": str(intent.end_lsn)}
    return CommitInfo(app, intent.number, json.dumps(told, sort_keys=True))


def number_of(commit: Commit, app_prefix: str, number: str = "cycle") -> int | None:
    """The number that a commit of ours carries, None when it is somebody else's.

    It stands beside an application id with this prefix or (OPTIMIZE and RESTORE have none) in the metadata, as `number`.
    """
    numbers = [value for app, value in commit.txns.items() if app.startswith(app_prefix)]
    if numbers:
        return max(numbers)
    try:
        told = json.loads(commit.user_metadata or "null")
    except ValueError:
        return None
    value = told.get(number) if isinstance(told, dict) and ("view" in told or "incarnation" in told) else None
    return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """How a table is made: Delta properties beside the ones that every table has.

    `statistics` are the columns whose least and greatest values each file's entry in the log has; Delta takes the table's
    first 32 where there are none.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()

    def options(self, columns: Sequence[str]) -> dict[str, str]:
        """The writer's options; deletion vectors spare rewriting rows that do not change."""
        mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(columns) else {}
        return {
            "delta.enableDeletionVectors": "true",
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            **_KEEP,
            **mapping,
            **({"delta.dataSkippingStatsColumns": ",".join(map(quoted, self.statistics))} if self.statistics else {}),
            **self.properties,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """What goes and comes, for a table that is there: rows whose `key` is in `deletes`, then `images`.

    `bounds`: the least and greatest value of a single integer key. `null_safe`: NULL is a key like others. `few`: all of it
    fits into the memory of each task. `keys_max`: `deletes` has at most so many rows; None where that is not known.
    `deletes` is None where nothing goes. `presupposed`: so many of `deletes`, each key once, are of rows that must be there,
    as their column `_lp_first` says, and no others may be (`presupposed.py`); None where that is not known.
    """

    key: tuple[str, ...]
    deletes: DataFrame | None
    images: DataFrame | None
    bounds: tuple[int, int] | None = None
    null_safe: bool = False
    few: bool = False
    keys_max: int | None = None
    presupposed: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The table's version now, rows inserted and deleted by this commit.

    When nothing went or came there is no commit: the version is the old one. `make` says who made it, `unfit` why a MERGE
    did when vectors would have been quicker.
    """

    version: int
    inserted: int
    deleted: int
    make: str = "none"
    unfit: str | None = None
