"""The Java that Spark gets: one that is missing or too old is reported before Spark is started, with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.section.spark import SparkConfig
from lakeproof.errors import DefiniteError
from lakeproof.lake.spark.driver import log_option
from lakeproof.lake.spark.java import check_java


def _java(folder: Path, says: str, status: int = 0, *, modules: bool = True) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(exist_ok=True)
    refusal = "" if modules else "[ $1 = --add-modules ] && exit 1\n"
    program.write_text(f"#!/bin/sh\n{refusal}echo '{says}' >&2\nexit {status}\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("says", "status", "reason"),
    [
        ('openjdk version "11.0.22" 2024-01-16', 0, "it is version 11, and Spark needs 17"),
        ('java version "1.8.0_392"', 0, "it is version 8, and Spark needs 17"),
        ("Error: could not find libjava.so", 1, "does not say which version it is"),
    ],
)
def test_an_unfit_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, status: int, reason: str
) -> None:
    """The error has Java's folder, and the version that Spark needs."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, says, status)))
    with pytest.raises(DefiniteError, match=reason) as refused:
        check_java()
    assert str(tmp_path) in str(refused.value)


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is missing if neither JAVA_HOME nor PATH has it, or if JAVA_HOME names a folder without it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DefiniteError, match="none on PATH"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(DefiniteError, match="No such file or directory"):
        check_java()


def test_a_new_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other lines of its output don't matter."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17 LTS')))
    assert check_java().major == 21


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ('java version "1.8.0_392"', "it is version 8, and Spark needs 17"),
        ('openjdk version "21.0.8" 2025-07-15 LTS', "without the module jdk.incubator.vector.*install a whole Java 17"),
    ],
)
def test_a_java_without_a_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, reason: str
) -> None:
    """One that was cut down ends at once when Spark starts it, and says why where nobody looks; Java 8 has no modules."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path, says, modules=False)))
    with pytest.raises(DefiniteError, match=reason):
        check_java()


@pytest.mark.parametrize(("text", "heap"), [("2GB", "2g"), ("2g", "2g"), ("512Mb", "512m"), ("1T", "1t")])
def test_an_amount_of_memory_is_one_that_the_jvm_takes(text: str, heap: str) -> None:
    """-Xmx2GB is refused by the JVM."""
    assert SparkConfig(driver_memory=text).driver_memory == heap


def test_the_drivers_log_settings_are_a_file_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not find them logs what it likes, and says so at each start."""
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert Path(log_option().partition("file://")[2]).is_file()
