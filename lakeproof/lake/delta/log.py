"""Reading a Delta table's commits straight from its log: which version is newest, what a commit says of itself.

Nothing is written here, and no Spark job runs: a look at one commit costs one file. Which data files a version has belongs
to `delta_files`, taking commits out of a log to `unnamed`.

A commit is JSON, one action a line; a line ends at a newline and nowhere else (U+2028 stands raw in Delta's statistics), and
JSON may have blanks. An action that is not known here counts as one that changes data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeproof.errors import LakeError

NO_VERSION = -1
LOG = "_delta_log"
_NAME_DIGITS = 20
_OURS = "lakeproof/"
RESTORE_LOG = "restore the log from a backup, or bootstrap the table again"
# What a commit says of itself and not of the table.
_NOTES = frozenset({"commitInfo", "txn"})
_FILES = frozenset({"add", "remove", "cdc"})


class StrayCommitError(LakeError):
    """A commit that changes data and that no cycle of ours stands behind; `thing` is the table's place."""


class LogGapError(LakeError):
    """A version is missing from the log, or can't be read: what it changed is not known."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: who wrote it (`txn`: application id → version), its operation and the metrics of that.

    `changes_data`: rows, columns, properties or the protocol; OPTIMIZE and the notes of a VACUUM do not. `txn_id` is
    Delta's own name for the transaction.
    """

    version: int
    txns: dict[str, int]
    metrics: dict[str, str]
    user_metadata: str | None
    changes_data: bool
    operation: str = ""
    txn_id: str | None = None

    @property
    def told(self) -> str:
        """Whose it is, when nobody expected it."""
        number = next((n for app, n in self.txns.items() if app.startswith(_OURS)), None)
        if number is None:
            return f"version {self.version} was committed by someone else"
        return f"version {self.version} is a commit of cycle {number} that no cut names"

    def metric(self, *names: str) -> int:
        """The first of these metrics that the operation has, 0 when it has none."""
        return next((int(self.metrics[n]) for n in names if n in self.metrics), 0)


def commit_file(path: str, version: int) -> Path:
    """Where a commit is."""
    return Path(path) / LOG / f"{version:0{_NAME_DIGITS}d}.json"


def newest_version(path: str) -> int:
    """The newest version of the table at `path`, NO_VERSION when there is no table."""
    versions = (p.stem for p in (Path(path) / LOG).glob("*.json"))
    return max((int(v) for v in versions if v.isdecimal() and len(v) == _NAME_DIGITS), default=NO_VERSION)


def read_actions(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """A commit's actions by kind; raises LogGapError when it is damaged or empty, FileNotFoundError when it is not there."""
    actions: list[tuple[str, dict[str, Any]]] = []
    try:
        for line in file.read_bytes().split(b"\n"):
            if line.strip():
                # More than one in a line is not Delta's, and nothing is lost by reading them.
                actions += json.loads(line).items()
    except (ValueError, AttributeError, RecursionError):
        actions = []
    if not actions or not all(isinstance(action, dict) for _, action in actions):
        raise LogGapError(str(file), "it is empty or damaged", "restore it from a backup")
    return actions


def read_commit(path: str, version: int) -> Commit | None:
    """One commit; None when it has not been made. Raises LogGapError about the table when it is damaged."""
    try:
        actions = read_actions(commit_file(path, version))
        return _commit(version, actions)
    except FileNotFoundError:
        return None
    except (LogGapError, TypeError, KeyError, ValueError, AttributeError):
        raise LogGapError(path, f"version {version} of its log is empty or damaged", RESTORE_LOG) from None


def _commit(version: int, actions: list[tuple[str, dict[str, Any]]]) -> Commit:
    txns = {str(txn["appId"]): int(txn["version"]) for kind, txn in actions if kind == "txn"}
    info = next((told for kind, told in actions if kind == "commitInfo"), {})
    changes = any(
        action.get("dataChange") is not False if kind in _FILES else kind not in _NOTES for kind, action in actions
    )
    metrics, user_metadata = dict(info.get("operationMetrics") or {}), info.get("userMetadata")
    return Commit(version, txns, metrics, user_metadata, changes, str(info.get("operation", "")), info.get("txnId"))


def find_commit(path: str, version: int, is_ours: Callable[[Commit], bool]) -> tuple[int, Commit | None]:
    """The last version before our commit after `version`, and it; the newest version and None when it was not made.

    What changes no data is passed over. Raises StrayCommitError at anybody else's commit that does, LogGapError when the
    log has a gap, or ends before `version`.
    """
    before = version
    while (commit := read_commit(path, before + 1)) is not None:
        if is_ours(commit):
            return before, commit
        if commit.changes_data:
            raise StrayCommitError(
                path, commit.told, "let nothing but lakeproof write this table, and snapshot it again"
            )
        before = commit.version
    check_whole(path, before)
    return before, None


def is_emptied(path: str, version: int) -> bool:
    """Whether the file of a commit is there and has nothing in it: Delta reads it as a commit of nothing."""
    try:
        return commit_file(path, version).stat().st_size == 0
    except FileNotFoundError:
        return False


def check_whole(path: str, seen: int) -> None:
    """Raise LogGapError when the log does not end at version `seen`, which can be read, or a later one that follows it."""
    newest = newest_version(path)
    told = None
    if newest < seen:
        told = f"its log ends at version {newest}, before version {seen} that the newest cut names"
    elif is_emptied(path, seen):
        told = f"version {seen} of its log is empty"
    # A commit may have come between the two looks.
    elif newest > seen and read_commit(path, seen + 1) is None:
        told = f"its log has version {newest} and not version {seen + 1}"
    if told is not None:
        raise LogGapError(path, told, RESTORE_LOG)
