"""`check` of the machine: the lake's folder, Java and the jars as they are, and nothing left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lakeproof.config.model import Config
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.spark import jars
from lakeproof.postgres.checks.findings import Severity
from lakeproof.state.machine import LakeCheck, check_lake, check_spark, is_refused


def _lake(folder: Path) -> LakeCheck:
    return check_lake(Config(path=folder.parent / "lakeproof.yaml", lake=str(folder), sources={}))


def test_a_folder_that_is_to_be_made_is_a_note_and_is_not_made(tmp_path: Path) -> None:
    """The file system is that of the nearest folder which exists."""
    seen = _lake(tmp_path / "a" / "b")
    assert not is_refused(seen.findings)
    assert any("does not exist yet" in f.reason and f.severity is Severity.NOTE for f in seen.findings)
    assert not seen.exists
    assert seen.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)
    assert seen.mounted_at is not None
    assert tmp_path.is_relative_to(seen.mounted_at)
    assert Path(seen.mounted_at).stat().st_dev == tmp_path.stat().st_dev
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_tested_without_a_trace(tmp_path: Path) -> None:
    """A file without a name is made in it, which is gone when it is closed."""
    before = tmp_path.stat().st_mtime_ns
    seen = _lake(tmp_path)
    assert (seen.exists, is_refused(seen.findings)) == (True, False)
    assert (list(tmp_path.iterdir()), tmp_path.stat().st_mtime_ns) == ([], before)


def test_a_folder_that_can_never_be_is_refused(tmp_path: Path) -> None:
    """The folder is below a file, or in a file system that the kernel only simulates."""
    (tmp_path / "file").touch()
    for folder, says in ((tmp_path / "file" / "lake", "is no folder"), (Path("/proc/lake"), "kernel's own (proc)")):
        (actual,) = _lake(folder).findings
        assert actual.severity is Severity.ERROR
        assert says in actual.reason
        assert "name another folder in `lake`" in actual.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_this_user_may_not_write_is_refused(tmp_path: Path) -> None:
    """The error has the system's own reason."""
    tmp_path.chmod(0o500)
    (actual,) = _lake(tmp_path / "lake").findings
    assert "Permission denied" in actual.reason


def test_spark_is_looked_at_and_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's version, the heap against the machine's memory, and whether the jars are there and are the right ones."""
    good = check_spark(SparkConfig())
    assert (good.java is not None and good.java >= 17, good.driver_memory, good.jars_present) == (True, "2g", True)
    assert not is_refused(good.findings)
    assert any("more than" in f.reason for f in check_spark(SparkConfig(driver_memory="900t")).findings)
    there = jars.jar_folder()
    monkeypatch.setenv(jars.VARIABLE, str(tmp_path / "jars"))
    none = check_spark(SparkConfig())
    assert (none.jars_present, is_refused(none.findings), (tmp_path / "jars").exists()) == (False, False, False)
    shutil.copytree(there, tmp_path / "jars")
    next((tmp_path / "jars").glob("delta-*.jar")).write_bytes(b"another")
    assert is_refused(check_spark(SparkConfig()).findings)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert check_spark(SparkConfig()).java is None
