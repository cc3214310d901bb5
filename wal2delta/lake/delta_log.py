"""Reading a Delta table's commits straight from its log: which version is newest, what a commit says of itself.

Nothing is written here, and no Spark job runs: a look at one commit costs one small file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO_VERSION = -1
_NAME_DIGITS = 20
_METADATA = ('{"metaData"', '{"protocol"')


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: who wrote it (`txn`: application id → version) and the metrics of its operation.

    `changes_data`: rows, columns, properties or the protocol; OPTIMIZE and the notes of a VACUUM do not.
    """

    version: int
    txns: dict[str, int]
    metrics: dict[str, str]
    user_metadata: str | None
    changes_data: bool

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
    return Commit(version, txns, dict(info.get("operationMetrics", {})), info.get("userMetadata"), changes)
