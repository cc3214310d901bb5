"""The Java of another version for the tests: a folder is taken by the version that it says it has."""

from pathlib import Path

from scripts.fetch.javas import home_of


def _java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return folder


def test_the_first_whole_java_of_the_version_is_taken(tmp_path: Path) -> None:
    """A name says nothing, and a folder without a program or a version is none."""
    (tmp_path / "21-empty").mkdir()
    older, newer = _java(tmp_path / "java-21", "17.0.2"), _java(tmp_path / "b", "21.0.8")
    folders = [tmp_path / "21-empty", older, newer, _java(tmp_path / "c", "21")]
    assert home_of("21", folders) == newer
    assert home_of("17", folders) == older
    assert home_of("2", folders) is None
