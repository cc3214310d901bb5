"""Lists the files that differ from the branch `main`, and the tests of tests/core that import a changed module.

Running them does not belong here (`parts.py`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(r"^\s*(?:from|import) ([\w.]+)(?: import (.+))?", re.MULTILINE)


def changed_files(root: Path = ROOT) -> list[str]:
    """Return the Python files that differ from the point where this branch left `main`, sorted; new ones among them."""
    base = _git(root, "merge-base", "HEAD", "main") or ["HEAD"]
    names = {*_git(root, "diff", "--name-only", base[0]), *_git(root, "ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in names if name.endswith(".py") and (root / name).exists())


def covering(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the changed test files, and those of tests/core that import a changed module by its name, sorted."""
    changed = list(changed)
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in changed}
    tests = {name for name in changed if name.startswith("tests/") and Path(name).name.startswith("test_")}
    for path in (root / "tests" / "core").glob("**/test_*.py"):
        if modules & set(_imported(path.read_text(encoding="utf-8"))):
            tests.add(str(path.relative_to(root)))
    return sorted(tests)


def _imported(text: str) -> Iterable[str]:
    """Yield the modules that a file imports: `from a import b` may name a or a.b."""
    for match in _IMPORT.finditer(text):
        yield match[1]
        for name in re.findall(r"\w+", match[2] or ""):
            yield f"{match[1]}.{name}"


def _git(root: Path, *arguments: str) -> Sequence[str]:
    """Return the lines of a command's output; none if it fails, as without a branch `main`."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []
