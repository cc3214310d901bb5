"""The archive of the driver's classes: whose it is, and that none, or a bad one, changes nothing that a person sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeproof.lake.spark.jars import jars
from lakeproof.lake.spark.java import Java, archive_file, archive_options, check_java, make_archive

_ROOT = Path(__file__).resolve().parents[3]
_WORK = """
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.spark.session import build_session

own = "-Dours=1 -XX:+UseSerialGC"
spark = build_session(SparkConfig(master="local[1]", conf={"spark.driver.extraJavaOptions": own}), "archive")
options = spark.conf.get("spark.driver.extraJavaOptions")
assert options.endswith(own) and "SharedArchiveFile" in options, options
assert spark.range(10).count() == 10
spark.stop()
"""


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    """One that another Java has made is not looked at: without one of its own, a driver gets no option."""
    old, new = Java(17, "17.0.1"), Java(17, "17.0.2")
    assert archive_options(old, tmp_path) == ""
    archive_file(old, tmp_path).write_bytes(b"")
    assert str(archive_file(old, tmp_path)) in archive_options(old, tmp_path)
    assert archive_options(new, tmp_path) == ""


def test_without_java_there_is_no_archive_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars are fetched and copied where none is made: nothing needs it."""
    monkeypatch.setenv("JAVA_HOME", os.devnull)
    assert make_archive(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.full
def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(tmp_path: Path) -> None:
    """Whatever is in the file: the driver starts, nothing is printed, and the configuration's own options come last."""
    place = tmp_path / "a folder"
    place.mkdir()
    for file in jars():
        (place / file.name).symlink_to(file)
    archive_file(check_java(), place).write_bytes(b"no archive of classes" * 1000)
    environment = {**os.environ, "PYTHONPATH": ".", "LAKEPROOF_JARS": str(place)}
    done = subprocess.run(
        [sys.executable, "-c", _WORK],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
