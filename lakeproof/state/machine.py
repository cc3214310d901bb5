"""Checks this machine: whether the lake can be written, and whether Spark would start. Nothing is changed or started.

Checking a source is in `check`. Without this check the first compaction would find the same, when the
slot that `bootstrap` made already keeps WAL.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakeproof.config.model import Config
from lakeproof.config.section.spark import SparkConfig
from lakeproof.errors import ConfigError, DefiniteError, LakeproofError
from lakeproof.lake.spark import jars
from lakeproof.lake.spark.jars import S3
from lakeproof.lake.spark.java import check_java
from lakeproof.postgres.checks.findings import Finding, error, errors_of, from_error, note, warning
from lakeproof.storage.open import folder_to_check, open_store

_MOUNTS = Path("/proc/self/mountinfo")
# The kernel shows these as files and keeps nothing in them.
_PSEUDO = frozenset({"proc", "sysfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf"})
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_FREE_SHARE_MIN = 0.05
_FREE_BYTES_MIN = 1_000_000_000
# A file system may not know unnamed files; then its permissions are asked instead.
_NOT_KNOWN = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
_ANOTHER = "name another folder in `lake`, or let this user write there"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class LakeCheck:
    """The lake's folder: whether it exists, its file system (where it is mounted, its kind), and the room there."""

    folder: str
    exists: bool
    mounted_at: str | None
    file_system: str | None
    free_bytes: int | None
    total_bytes: int | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class SparkCheck:
    """The Java, heap and jars that Spark would start with; `java` is a major version, None if no Java fits.

    Nothing of it matters, and nothing is an error, if Spark is not installed.
    """

    installed: bool
    java: int | None
    driver_memory: str
    memory_bytes: int | None
    jars: str
    jars_present: bool
    findings: tuple[Finding, ...]


def is_refused(findings: tuple[Finding, ...]) -> bool:
    """True if a finding is an error."""
    return bool(errors_of(findings))


def check_lake(config: Config) -> LakeCheck:
    """Look at the lake's folder, or the nearest one above it that exists."""
    try:
        folder = folder_to_check(config.location)
    except ConfigError as refusal:
        return LakeCheck(config.lake, False, None, None, None, None, (from_error(refusal),))
    if folder is None:
        return _object_store_check(config)
    nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    mounted_at, kind = _mount(nearest)
    try:
        usage = shutil.disk_usage(nearest)
        free, total = usage.free, usage.total
    except OSError:
        free, total = None, None
    findings = tuple(_lake_findings(folder, nearest, kind, free, total))
    return LakeCheck(str(folder), nearest == folder, mounted_at, kind, free, total, findings)


def _object_store_check(config: Config) -> LakeCheck:
    """Ask an object store whether it can be listed; what else is needed is tried before the first write."""
    thing = f"lake {config.lake}"
    try:
        exists = bool(open_store(config.location).folders(""))
    except LakeproofError as refusal:
        return LakeCheck(config.lake, False, None, None, None, None, (from_error(refusal),))
    findings = [] if exists else [note(thing, "it does not exist yet", "`lakeproof bootstrap` makes it")]
    if config.storage.allow_http and (config.storage.endpoint or "").startswith("http://"):
        reason = "its endpoint has no TLS: rows and requests can be read on their way"
        findings.append(warning(thing, reason, "give `storage.endpoint` with https://"))
    return LakeCheck(config.lake, exists, None, None, None, None, tuple(findings))


def _lake_findings(
    folder: Path, nearest: Path, kind: str | None, free: int | None, total: int | None
) -> Iterator[Finding]:
    thing = f"lake {folder}"
    subject = "it" if nearest == folder else f"{nearest}, above it,"
    problem = "is one of the kernel's own (" + str(kind) + ")" if kind in _PSEUDO else _why_not_writable(nearest)
    if problem is not None:
        yield error(thing, f"{subject} {problem}", _ANOTHER)
        return
    if nearest != folder:
        yield note(thing, "it does not exist yet", "`lakeproof bootstrap` makes it")
    if kind in _IN_MEMORY:
        reason = f"it is on {kind}, that is in memory: it is gone when this machine restarts"
        yield warning(thing, reason, "name a folder on a disk in `lake`")
    if free is not None and total and (free < _FREE_SHARE_MIN * total or free < _FREE_BYTES_MIN):
        reason = f"its file system is nearly full: {free / 1e9:.1f} of {total / 1e9:.1f} GB are free"
        yield warning(thing, reason, "make room, or name a folder with more: a full disk stops the drain")


def _why_not_writable(folder: Path) -> str | None:
    """Return why nothing can be written in `folder`, None if it can: an unnamed file is written, and vanishes again."""
    try:
        if not folder.is_dir():
            return "is no folder"
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError as refusal:
        if refusal.errno not in _NOT_KNOWN:
            return f"can't be written ({refusal.strerror})"
        return None if os.access(folder, os.W_OK | os.X_OK) else "can't be written"
    return None


def _mount(place: Path) -> tuple[str | None, str | None]:
    """Return where the file system of `place` is mounted, and its kind; None if the system does not say."""
    best: tuple[str | None, str | None] = (None, None)
    try:
        real, lines = place.resolve(), _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return best
    for line in lines:
        before, _, after = line.partition(" - ")
        mounted_at = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        # A later line hides an earlier one of the same place.
        if real.is_relative_to(mounted_at) and len(mounted_at) >= len(best[0] or ""):
            best = mounted_at, after.split()[0]
    return best


def check_spark(spark: SparkConfig, *, s3: bool = False) -> SparkCheck:
    """Ask Java for its version and look at the heap and the jars; Spark is not started. `s3`: the lake is there."""
    findings: list[Finding] = []
    java = None
    if find_spec("pyspark") is None:
        reason = "it is not installed, so views, and tables that need Spark, are for another machine"
        only = note("Spark", reason, "or run `pip install 'lakeproof[spark]'` here")
        return SparkCheck(False, None, spark.driver_memory, _machine_memory(), str(jars.jar_folder()), False, (only,))
    try:
        java = check_java().major
    except DefiniteError as refusal:
        findings.append(from_error(refusal))
    memory = _machine_memory()
    heap = int(spark.driver_memory[:-1]) * _UNITS[spark.driver_memory[-1]]
    if memory is not None and heap > memory:
        reason = f"its heap of {spark.driver_memory} is more than the {memory / 1e9:.1f} GB that this machine has"
        findings.append(warning("spark.driver_memory", reason, "lower it, or take a larger machine"))
    folder = jars.jar_folder()
    sets = [jars.DELTA, S3] if s3 else [jars.DELTA]
    present = not jars.missing_jars(folder, sets)
    if not present:
        remedy = f"the first start of Spark fetches them; or name a folder that has them in {jars.VARIABLE}"
        findings.append(note("Spark's jars", f"they are not in {folder} yet", remedy))
    else:
        try:
            jars.jars(folder, sets)
        except DefiniteError as refusal:
            findings.append(from_error(refusal))
    return SparkCheck(True, java, spark.driver_memory, memory, str(folder), present, tuple(findings))


def _machine_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
