"""Jars that Spark needs beside its own: their checksums, and how they come onto this machine; Delta's are named here.

Other settings of a session are in `session.py`, the jars for S3 in `s3.py`.

Delta names 33 jars; 30 of them are older copies of what PySpark brings, or are not needed on a folder. These three are
enough. They are fetched once, by Spark's own Ivy from the repositories it is configured for, and from then on given to Spark
as files: a start asks no network, and another content than the one named here is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakeproof.errors import LakeError
from lakeproof.lake.spark.java import check_java

# A folder with the jars; if it does not exist, they are fetched into it.
VARIABLE = "LAKEPROOF_JARS"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are needed together: Maven coordinate → SHA-256; `left_out`: what else they depend on, as Ivy's patterns."""

    name: str
    checksums: Mapping[str, str]
    left_out: Sequence[str]


DELTA = JarSet(
    "Delta's jars",
    {
        "io.delta:delta-spark_4.2_2.13:4.4.0": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        "io.delta:delta-storage:4.4.0": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        "io.delta:delta-kernel-api:4.4.0": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    },
    left_out=(
        "com.*:*",
        "commons-*:*",
        "io.airlift:*",
        "io.delta:delta-kernel-defaults",
        "io.delta:delta-kernel-unitycatalog",
        "io.unitycatalog:*",
        "javax.*:*",
        "org.*:*",
    ),
)
_FETCH = """
import sys
from pyspark.sql import SparkSession
packages, left_out, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").appName("lakeproof jars")
for key, value in {
    "spark.jars.packages": packages, "spark.jars.excludes": left_out, "spark.jars.ivy": folder,
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}.items():
    builder = builder.config(key, value)
builder.getOrCreate().stop()
"""
_FETCH_S_MAX = 600
REMEDY = "run `lakeproof fetch-jars FOLDER` on a machine with a network, and name the folder in LAKEPROOF_JARS"


def jar_folder() -> Path:
    """Return the folder of the jars, which may not exist yet: LAKEPROOF_JARS, else a folder of this user's cache."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "lakeproof" / "jars"


def jars(place: Path | None = None, sets: Sequence[JarSet] = (DELTA,)) -> list[Path]:
    """Return the jars' files, fetched if they are not there; raises LakeError if they can't be had or are others.

    They are in `place`, by default in `folder()`.
    """
    place = jar_folder() if place is None else place
    # Before anything is fetched: beside a file that is not ours nothing is put.
    for jar_set in sets:
        check_jars(place, jar_set)
    for jar_set in sets:
        if missing_jars(place, [jar_set]):
            fetch(place, jar_set)
    return [jar_file(place, coordinate) for jar_set in sets for coordinate in jar_set.checksums]


def missing_jars(place: Path, sets: Iterable[JarSet] = (DELTA,)) -> list[str]:
    """Return the coordinates of the jars that are not in `place`."""
    return [name for jar_set in sets for name in jar_set.checksums if not jar_file(place, name).exists()]


def check_jars(place: Path, jar_set: JarSet) -> None:
    """Compare the checksums of the jars that are in `place`; raises LakeError for one of another content."""
    for coordinate, sha256 in jar_set.checksums.items():
        file = jar_file(place, coordinate)
        if file.exists() and sha256_of(file) != sha256:
            raise LakeError(str(file), "its content differs from what this version needs", f"remove it, then {REMEDY}")


def fetch(place: Path, jar_set: JarSet) -> None:
    """Fetch the jars into `place`; raises LakeError if a jar can't be had or differs, DefiniteError for no Java."""
    check_java()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _fetch(place, jar_set)
    except OSError as error:
        raise LakeError(str(place), f"nothing can be written there: {error.strerror or error}", REMEDY) from None


def _fetch(place: Path, jar_set: JarSet) -> None:
    checksums = jar_set.checksums
    with tempfile.TemporaryDirectory(prefix="lakeproof-jars-") as ivy:
        command = [sys.executable, "-c", _FETCH, ",".join(checksums), ",".join(jar_set.left_out), ivy]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise LakeError(jar_set.name, f"they could not be fetched within {_FETCH_S_MAX} s", REMEDY) from None
        fetched = {coordinate: Path(ivy) / "jars" / _ivy_name(coordinate) for coordinate in checksums}
        for coordinate, file in fetched.items():
            if not file.exists():
                lines = [line for line in done.stderr.splitlines() if "Exception" in line or "not found" in line]
                reason = lines[-1].strip()[:300] if lines else "Ivy did not say why"
                raise LakeError(coordinate, f"it could not be fetched ({reason})", REMEDY)
            if sha256_of(file) != checksums[coordinate]:
                raise LakeError(
                    coordinate, "what was fetched has another checksum", "look at the repository that Ivy uses"
                )
        for coordinate, file in fetched.items():
            put_jar(file, jar_file(place, coordinate))


def put_jar(file: Path, target: Path) -> None:
    """Copy a jar whole or not at all: other processes may start just now."""
    copied = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copyfile(file, copied)
    copied.replace(target)


def jar_file(place: Path, coordinate: str) -> Path:
    """Return the place of a jar in the folder of jars."""
    _, artifact, version = coordinate.split(":")
    return place / f"{artifact}-{version}.jar"


def _ivy_name(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    return f"{group}_{artifact}-{version}.jar"


def sha256_of(file: Path) -> str:
    """Return the checksum of a file of some megabytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
