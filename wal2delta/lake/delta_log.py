"""Reading a Delta table's commits straight from its log: which version is newest, what a commit says of itself.

Nothing is written here, and no Spark job runs: a look at one commit costs one small file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wal2delta.errors import LakeError

NO_VERSION = -1
_NAME_DIGITS = 20
_METADATA = ('{"metaData"', '{"protocol"')
_OURS = "wal2delta/"


class StrayCommitError(LakeError):
    """A commit that changes data and that no cycle of ours stands behind; `thing` is the table's place."""


class LogGapError(LakeError):
    """A version is missing from the log: what it changed is not known."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: who wrote it (`txn`: application id → version), its operation and the metrics of that.

    `changes_data`: rows, columns, properties or the protocol; OPTIMIZE and the notes of a VACUUM do not.
    """

    version: int
    txns: dict[str, int]
    metrics: dict[str, str]
    user_metadata: str | None
    changes_data: bool
    operation: str = ""

    @property
    def told(self) -> str:
        """Whose it is, where nobody expected it."""
        number = next((n for app, n in self.txns.items() if app.startswith(_OURS)), None)
        if number is None:
            return f"version {self.version} was committed by someone else"
        return f"version {self.version} is a commit of cycle {number} that no cut names"

    def metric(self, *names: str) -> int:
        """The first of these metrics that the operation has, 0 where it has none."""
        return next((int(self.metrics[n]) for n in names if n in self.metrics), 0)


def newest_version(path: str) -> int:
    """The newest version of the table at `path`, NO_VERSION where there is no table."""
    versions = (p.stem for p in (Path(path) / "_delta_log").glob("*.json"))
    return max((int(v) for v in versions if v.isdecimal() and len(v) == _NAME_DIGITS), default=NO_VERSION)


def read_commit(path: str, version: int) -> Commit | None:
    """One commit; None where it has not been made."""
    try:
        text = (Path(path) / "_delta_log" / f"{version:0{_NAME_DIGITS}d}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    txns: dict[str, int] = {}
    info: dict[str, Any] = {}
    changes = False
    # Only these two short actions are parsed: a commit may have thousands of files.
    for line in text.splitlines():
        if line.startswith('{"txn"'):
            txn = json.loads(line)["txn"]
            txns[txn["appId"]] = int(txn["version"])
        elif line.startswith('{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
        elif line.startswith(_METADATA) or '"dataChange":true' in line:
            changes = True
    metrics = dict(info.get("operationMetrics", {}))
    return Commit(version, txns, metrics, info.get("userMetadata"), changes, str(info.get("operation", "")))


@dataclass(frozen=True, slots=True)
class Found:
    """What follows a version: the one to commit on, our commit (None: not made), the stray ones that still count.

    `base` is the version itself, or the one that took back what came between.
    """

    base: int
    before: int
    commit: Commit | None
    strays: tuple[Commit, ...] = ()


def look_after(
    path: str, version: int, is_ours: Callable[[Commit], bool], takes_back: Callable[[Commit], bool] | None = None
) -> Found:
    """What follows `version`, up to our commit. What changes no data is passed over.

    A commit on top of a stray one has its rows, so it is not taken for ours; one that `takes_back` brings the rows of
    `version` again, and what came before it counts no more. Raises LogGapError where the log has a gap, or ends before
    `version`.
    """
    strays: list[Commit] = []
    at = base = before = version
    while (found := read_commit(path, at + 1)) is not None:
        at = found.version
        if takes_back is not None and takes_back(found):
            strays, base, before = [], at, at
        elif not strays and is_ours(found):
            return Found(base, before, found)
        elif found.changes_data:
            strays.append(found)
        if not strays:
            before = at
    _check_whole(path, at)
    return Found(base, before, None, tuple(strays))


def _check_whole(path: str, seen: int) -> None:
    newest = newest_version(path)
    told = None
    if newest < seen:
        told = f"its log ends at version {newest}, before version {seen} that the newest cut names"
    # A commit may have come between the two looks.
    elif newest > seen and read_commit(path, seen + 1) is None:
        told = f"its log has version {newest} and not version {seen + 1}"
    if told is not None:
        raise LogGapError(path, told, "see docs/operations.md, someone else has committed to a table of the lake")


def find_commit(path: str, version: int, is_ours: Callable[[Commit], bool]) -> tuple[int, Commit | None]:
    """The last version before our commit after `version`, and it; the newest version and None where it was not made.

    Raises StrayCommitError at anybody else's commit that changes data.
    """
    found = look_after(path, version, is_ours)
    if found.strays:
        raise StrayCommitError(
            path, found.strays[0].told, "let nothing but wal2delta write this table, and snapshot it again"
        )
    return found.before, found.commit
