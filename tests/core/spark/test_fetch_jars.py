"""`lakeproof fetch-jars`: the pinned jars in a folder, and no other content under their names."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from lakeproof.cli.main import main
from lakeproof.lake.spark.jars import jars


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can't fetch: Ivy runs in Java."""
    monkeypatch.setenv("JAVA_HOME", os.devnull)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the jars, as they were fetched for the tests."""
    for file in jars():
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


@pytest.mark.usefixtures("no_java")
def test_a_second_run_fetches_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that has every jar starts no Java and writes no file."""
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert main(["fetch-jars", str(folder), "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert (message["fetched"], sorted(message["jars"])) == ([], sorted(file.name for file in before))
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


@pytest.mark.usefixtures("no_java")
def test_a_jar_of_another_content_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has the jar's name and a remedy, also if another jar is still missing; nothing is changed."""
    changed, gone, _ = sorted(folder.iterdir())
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    gone.unlink()
    assert main(["fetch-jars", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"{changed}: its content differs from what this version needs; remove it" in error
    assert changed.read_bytes() == content
    assert not gone.exists()


@pytest.mark.usefixtures("no_java")
def test_without_java_nothing_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder is not made either."""
    assert main(["fetch-jars", str(tmp_path / "jars")]) == 2
    assert "install a whole Java 17 or newer" in capsys.readouterr().err
    assert not (tmp_path / "jars").exists()
