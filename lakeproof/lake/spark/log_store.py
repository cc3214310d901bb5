"""The jar with which Delta's commits and checksum files on S3 become conditional creates: compiled here, from Java sources.

Jars that are fetched do not belong here (`jars.py`, `s3_jars.py`), nor the settings that name it (`s3_settings.py`).

The compiler is Janino, which PySpark brings: a JDK is not needed, and no binary is in the source. The jar is kept beside
those that it was compiled with, under a name that changes with its source and their versions, and with its content.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from lakeproof.errors import InvariantError, LakeError
from lakeproof.lake.spark.jars import DELTA, REMEDY, folder, jar_file, jars, put_jar, sha256_of
from lakeproof.lake.spark.java import java_program
from lakeproof.lake.spark.s3_jars import S3

_SOURCES = tuple(
    Path(__file__).with_name(f"{name}.java") for name in ("ConditionalPut", "ConditionalLogStore", "ChecksumFiles")
)
_PACKAGE = "lakeproof"
# PySpark's jars that these sources call, or that the types they call speak of.
_CALLED = (
    "hadoop-client-api-*.jar",
    "hadoop-client-runtime-*.jar",
    "log4j-api-*.jar",
    "scala-library-*.jar",
    "slf4j-api-*.jar",
    "spark-common-utils-java_*.jar",
    "spark-common-utils_*.jar",
    "spark-sql_*.jar",
)
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_STORAGE = next(name for name in DELTA.checksums if ":delta-storage:" in name)
_DIGITS = 16
_COMPILE_S_MAX = 120


def jars_with_s3(place: Path | None = None) -> list[Path]:
    """Return Delta's jars, those for S3 and this one; as `jars.jars`."""
    place = folder() if place is None else place
    return [*jars(place, (DELTA, S3)), log_store_jar(place)]


def log_store_jar(place: Path) -> Path:
    """Return the jar in the folder of jars, compiled if it is not there; raises LakeError if its content is another one.

    Delta's own jars are in that folder.
    """
    name = f"lakeproof-log-store-{_digest(_versions())}"
    for jar in sorted(place.glob(f"{name}-*.jar")):
        if jar.stem != f"{name}-{sha256_of(jar)[:_DIGITS]}":
            raise LakeError(str(jar), "its content is not what was compiled", "remove it; it is compiled again")
        return jar
    with tempfile.TemporaryDirectory(prefix="lakeproof-jars-") as folder:
        compiled = Path(folder) / "log-store.jar"
        _pack(_compile(place, Path(folder)), compiled)
        target = place / f"{name}-{sha256_of(compiled)[:_DIGITS]}.jar"
        try:
            put_jar(compiled, target)
        except OSError as error:
            raise LakeError(str(place), f"nothing can be written there: {error.strerror or error}", REMEDY) from None
    return target


def _versions() -> bytes:
    """Return what the compiled classes follow from: their sources, and the versions of what they call."""
    return b"\n".join([*(s.read_bytes() for s in _SOURCES), _STORAGE.encode(), pyspark.__version__.encode()])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _compile(place: Path, folder: Path) -> dict[str, bytes]:
    """Return the compiled classes by their names in the jar."""
    spark = Path(pyspark.__file__).parent / "jars"
    compiler = [_only(spark, "janino-*.jar"), _only(spark, "commons-compiler-*.jar")]
    called = [*(_only(spark, pattern) for pattern in _CALLED), jar_file(place, _STORAGE)]
    command = [java_program(), "-cp", _class_path(compiler), _COMPILER, "-d", str(folder), "-classpath"]
    try:
        done = subprocess.run(
            [*command, _class_path(called), *map(str, _SOURCES)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LakeError(
            str(_SOURCES[0].parent), f"it was not compiled within {_COMPILE_S_MAX} s", "run it again"
        ) from None
    classes = {f"{_PACKAGE}/{file.name}": file.read_bytes() for file in (folder / _PACKAGE).glob("*.class")}
    for source in _SOURCES:
        if f"{_PACKAGE}/{source.stem}.class" not in classes:
            lines = (done.stderr + done.stdout).strip().splitlines()
            raise InvariantError(str(source), f"it was not compiled ({lines[:1]})", "report this")
    return classes


def _only(folder: Path, pattern: str) -> Path:
    """Return PySpark's jar of that name, whatever its version."""
    jars = sorted(folder.glob(pattern))
    if not jars:
        raise LakeError(str(folder), f"it has no {pattern}", "install PySpark again")
    return jars[-1]


def _class_path(jars: list[Path]) -> str:
    return ":".join(map(str, jars))


def _pack(compiled: dict[str, bytes], jar: Path) -> None:
    """Put the classes into a jar without a time, so that the same classes give the same jar."""
    with zipfile.ZipFile(jar, "w") as packed:
        for name, content in sorted(compiled.items()):
            packed.writestr(zipfile.ZipInfo(name), content)
