"""Puts Dagster's half into a wheel: the rooms at the top of the repository become packages inside `lakeproof_dagster`.

The pages of the manual come along, for `lakeproof help`.

At the top level of an installation names such as `assets` and `jobs` would collide with anybody's project. Only imports are
changed, by the places that Python's parser gives. Building the rest of the wheel does not belong here: hatchling calls this.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "lakeproof_dagster"
ROOMS = ("assets", "jobs", "orchestration", "resources")


class RoomsHook(BuildHookInterface[Any]):
    """Writes the rooms, with their new imports, into a temporary folder, and has the wheel take them from there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Do it, unless the installation is editable: that uses the rooms where they are."""
        if version == "editable":
            return
        for page in sorted((Path(self.root) / "docs").glob("*.md")):
            build_data["force_include"][str(page)] = f"lakeproof/manual/{page.name}"
        self._folder = Path(tempfile.mkdtemp(prefix="lakeproof-wheel-"))
        for room in (*ROOMS, PACKAGE):
            for file in sorted((Path(self.root) / room).rglob("*")):
                if not file.is_file() or "__pycache__" in file.parts:
                    continue
                below = file.relative_to(self.root)
                inside = below if room == PACKAGE else Path(PACKAGE) / below
                target = self._folder / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                if file.suffix == ".py":
                    target.write_text(with_new_imports(file.read_text(encoding="utf-8"), str(below)), encoding="utf-8")
                else:
                    shutil.copyfile(file, target)
                build_data["force_include"][str(target)] = str(inside)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)


def with_new_imports(source: str, file: str) -> str:
    """Return a module whose imports from the rooms are from `PACKAGE`; raises ValueError for another form of import."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in ROOMS for alias in node.names):
            raise ValueError(f"{file}:{node.lineno}: it imports a room by `import`; write `from … import …`")
        if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").partition(".")[0] not in ROOMS:
            continue
        number = node.lineno - 1
        before, word, after = lines[number].partition(f"from {node.module}")
        if not word:
            raise ValueError(f"{file}:{node.lineno}: the import is not on one line with its module")
        lines[number] = f"{before}from {PACKAGE}.{node.module}{after}"
    return "".join(lines)
