"""The files and tests of `make quick`: what differs from the branch main, and which tests import it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.changed import changed_files, covering


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_what_was_committed_edited_or_added_since_main_is_changed(tmp_path: Path) -> None:
    """Files that main alone has changed, that are deleted, or are no Python do not count."""
    _git(tmp_path, "init", "-q", "-b", "main")
    _write(tmp_path, dict.fromkeys(("kept.py", "edited.py", "gone.py", "page.md", "committed.py"), ""))
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    _git(tmp_path, "checkout", "-qb", "own")
    _write(tmp_path, {"committed.py": "x = 1\n"})
    _git(tmp_path, "commit", "-qam", "second")
    _git(tmp_path, "checkout", "-q", "main")
    _write(tmp_path, {"kept.py": "x = 2\n"})
    _git(tmp_path, "commit", "-qam", "third")
    _git(tmp_path, "checkout", "-q", "own")
    _write(tmp_path, {"edited.py": "x = 3\n", "new.py": "", "page.md": "more\n"})
    (tmp_path / "gone.py").unlink()
    assert changed_files(tmp_path) == ["committed.py", "edited.py", "new.py"]


def test_a_test_that_imports_a_changed_module_runs_and_no_other(tmp_path: Path) -> None:
    """By `from` its folder, by `from` itself, by `import`, and in a function; a longer name is another module."""
    texts = {
        "test_folder.py": "from lakeproof.values import casts, types\n",
        "test_itself.py": "from lakeproof.values.types import arrow_type\n",
        "test_import.py": "import lakeproof.values.types\n",
        "test_inside.py": "def test_it():\n    from lakeproof.values.types import arrow_type\n",
        "test_longer.py": "from lakeproof.values.types_of import other\n",
    }
    _write(tmp_path / "tests" / "core", texts)
    changed = ["lakeproof/values/types.py", "tests/edges/test_values.py", "tests/support/lake/compare.py"]
    expected = [f"tests/core/{name}" for name in sorted(texts) if name != "test_longer.py"]
    assert covering(changed, tmp_path) == [*expected, "tests/edges/test_values.py"]
