"""The Java that Spark starts: a check that there is one on which it runs, and the archive of the driver's classes.

Starting the session belongs to `session`, the jars to `jars`. Spark itself gives the same message for a missing Java, an old
one and a bad heap.

A driver reads some 20,000 classes out of 250 jars before a small query has its first row, which was half of its CPU. The
archive (JVM: "class data sharing") has Spark's classes as a JVM has read and checked them, mapped at every later start. It
is made once, beside the jars that are fetched, by a driver that does a little of everything. Its name has the Java, Spark's
jars and their times, so another Java or Spark finds none; the JVM itself refuses one that does not fit, without a word.
Whether there is one changes nothing but time, so no failure here is an error.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakeproof.errors import DefiniteError

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S_MAX = 30
_INSTALL = (
    f"install a whole Java {OLDEST_JAVA} or newer, and name its folder in JAVA_HOME if it is not the first on PATH"
)
# `spark-submit` asks for it always. A Java that was cut down to some modules (by jlink) may be without it.
_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its major version, and all that it says of its version."""

    major: int
    text: str


def java_program() -> str:
    """Return the Java that Spark will start; raises DefiniteError if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise DefiniteError("Java", "there is none on PATH, and JAVA_HOME is not set", _INSTALL)
    return program


def check_java() -> Java:
    """Return the Java that Spark will start; raises DefiniteError if there is none, it is too old, or lacks a module.

    Costs one start of Java, 0.1 s.
    """
    program = java_program()
    text = _version(program, "--add-modules", _MODULE)
    has_module = text is not None
    text = text or _version(program)
    version = None if text is None else _VERSION.search(text)
    if text is None or version is None:
        raise DefiniteError(f"Java {program}", "it does not say which version it is", _INSTALL)
    major = int(version[1])
    if major < OLDEST_JAVA:
        raise DefiniteError(f"Java {program}", f"it is version {major}, and Spark needs {OLDEST_JAVA}", _INSTALL)
    if not has_module:
        raise DefiniteError(f"Java {program}", f"it is without the module {_MODULE}, which Spark asks for", _INSTALL)
    return Java(major, text)


def _version(program: str, *options: str) -> str | None:
    """Return what a Java says of its version, None if it does not start with these options."""
    command = [program, *options, "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or "it does not answer"
        raise DefiniteError(f"Java {program}", f"it could not be started ({reason})", _INSTALL) from None
    return done.stderr + done.stdout if done.returncode == 0 else None


_MAKE_S_MAX = 600
_SUFFIX = ".jsa"
# What a proof, a view and a compaction do, on a table of a few rows.
_WORK = """
import sys
from pyspark import SparkContext
from pyspark.sql import Window
from pyspark.sql import functions as F
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.spark.session import build_session

archive, folder = sys.argv[1:]
conf = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"'}
spark = build_session(SparkConfig(master="local[2]", conf=conf), "lakeproof classes")
table = f"delta.`{folder}/t`"
properties = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
columns = "a bigint, b string, c decimal(10, 2), d double, e timestamp, f date, g array<int>, h string"
spark.sql(f"CREATE TABLE {table} ({columns}) USING delta TBLPROPERTIES ({properties})")
rows = spark.range(500).selectExpr(
    "id a", "concat('x', id) b", "cast(id / 3 as decimal(10, 2)) c", "id / 7D d", "timestamp_micros(id) e",
    "date_from_unix_date(cast(id as int)) f", "array(cast(id as int)) g", "cast(NULL as string) h",
)
rows.write.format("delta").mode("append").save(f"{folder}/t")
rows.write.parquet(f"{folder}/p")
spark.sql(f"DELETE FROM {table} WHERE a % 7 = 0")
read = spark.read.format("delta").option("versionAsOf", 2).load(f"{folder}/t")
bits = F.conv(F.substring(F.md5(F.concat_ws("|", "a", "b", "c", "e")), 1, 15), 16, 10).cast("bigint")
read.select((F.col("a") % 8).alias("n"), bits.alias("h"), F.xxhash64("a", "b", "c")).groupBy("n").agg(
    F.count("*"), F.sum(F.col("h") % 1000), F.min("n")
).collect()
joined = read.alias("x").join(spark.read.parquet(f"{folder}/p").alias("y"), "a")
view = joined.groupBy("x.f").agg(F.sum("x.c").alias("s"), F.count("*").alias("n"))
view.write.format("delta").mode("overwrite").save(f"{folder}/v")
again = spark.read.format("delta").load(f"{folder}/v")
view.exceptAll(again).unionByName(again.exceptAll(view)).persist().count()
list(read.withColumn("n", F.row_number().over(Window.partitionBy("b").orderBy("a"))).orderBy("a").toLocalIterator())
read.where(F.col("a").isin([1, 2])).toArrow()
gateway = SparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def archive_options(java: Java, place: Path) -> str:
    """Return the JVM's options for its archive in the folder of jars; none if there is none."""
    file = archive_file(java, place)
    if not file.is_file():
        return ""
    # One that does not fit the JVM is passed over, which is nothing that anybody can act on.
    return f'"-XX:SharedArchiveFile={file}" -Xshare:auto -Xlog:cds*=off -Xlog:class+path=off'


def make_archive(place: Path) -> Path | None:
    """Make the archive for the Java that Spark will start, in the folder of jars; None if it can't be had.

    Nothing is done if it is there. Takes as long as two starts of Spark. Those for an older Java or Spark are removed.
    """
    try:
        file = archive_file(check_java(), place)
        if not file.is_file():
            _make(file)
    except (DefiniteError, OSError, subprocess.SubprocessError):
        return None
    return file


def _make(file: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="lakeproof-classes-", dir=file.parent) as folder:
        new = Path(folder) / file.name
        command = [sys.executable, "-c", _WORK, str(new), folder]
        subprocess.run(command, capture_output=True, timeout=_MAKE_S_MAX, check=True)
        new.replace(file)
    for other in file.parent.glob(f"{file.name.partition('.')[0]}.*{_SUFFIX}"):
        if other != file:
            with suppress(OSError):
                other.unlink()


def archive_file(java: Java, place: Path) -> Path:
    """Return the archive's name: this installation of Spark, then what a JVM compares with its own."""
    home = os.environ.get("SPARK_HOME") or _package()
    jars = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(f"{home}/jars"))
    return place / f"classes-{_digest(home)}.{_digest(f'{java.text}{jars}')}{_SUFFIX}"


def _package() -> str:
    # Not by importing it: who fetches the jars needs no Spark otherwise.
    spec = find_spec("pyspark")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
