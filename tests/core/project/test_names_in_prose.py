"""Pages, docstrings and comments name only what there is: modules, what is in them, settings, and names of the code.

Links are looked at by the manual's build, commands by `test_manual_commands.py`, a room's list of modules by
`tests/test_tidy_files.py`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section import Model
from scripts.source_trees import comments_of, docstrings_of, nodes_of, text_of

ROOT = Path(__file__).resolve().parents[3]
_ROOMS = ("lakeproof", "resources", "assets", "jobs", "orchestration", "demo", "bench", "scripts", "tests")
_SPAN = re.compile(r"`+([^`\n]+)`+")
_FILE = re.compile(r"(?<![\w./…*-])((?:\w+/)+\w+\.py)\b")
_DOTTED = re.compile(rf"(?<![\w./-])((?:{'|'.join(_ROOMS)})(?:\.\w+)+)(?![\w./])")
_SETTING = re.compile(r"([a-z_]+)\.([a-z_]+)(?:: .*)?")
_NAME = re.compile(r"(?<![\w.…<>{*-])([a-z]+(?:_[a-z0-9]+)+)(?![\w*…<-])")
# Files that are called after a room, and the name that a decision has turned down.
_NO_MODULES = {"lakeproof.yaml", "lakeproof.dagster"}
# Settings of Spark's and of others, that begin as sections of ours do.
_SECTIONS = {"compaction", "retention", "snapshot", "drain", "storage", "health", "alerts"}
# Names of PostgreSQL's, and one that is put together.
_NO_NAMES = {"schema_sent", "start_lsn_int", "pg_get_publication_tables", "pg_partition_tree"}


@functools.cache
def _modules() -> dict[str, Path]:
    """Return the project's modules and packages by their dotted names."""
    paths = [path for room in _ROOMS for path in (ROOT / room).rglob("*.py")]
    return {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def _prose() -> Iterator[tuple[str, str]]:
    """Yield each page, and each docstring and comment of the code, with its place."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "lakeproof").rglob("*.md")]:
        if page.name != "CHANGELOG.md":
            yield str(page.relative_to(ROOT)), text_of(page)
    for path in _modules().values():
        place = str(path.relative_to(ROOT))
        yield from ((f"{place}:{line}", text) for line, text in docstrings_of(path))
        yield from ((place, comment) for comment in comments_of(path))


def _spans() -> Iterator[tuple[str, str]]:
    for place, text in _prose():
        yield from ((place, span) for span in _SPAN.findall(text))


@functools.cache
def _names(path: Path) -> frozenset[str]:
    """Return the names in a module's code, and the words of its texts for the machine, which have no backtick."""
    names = {node.name for node in nodes_of(path, ast.FunctionDef, ast.AsyncFunctionDef)}
    names |= {node.name for node in nodes_of(path, ast.ClassDef)} | {node.arg for node in nodes_of(path, ast.arg)}
    names |= {node.id for node in nodes_of(path, ast.Name)} | {node.attr for node in nodes_of(path, ast.Attribute)}
    names |= {node.arg for node in nodes_of(path, ast.keyword) if node.arg}
    for alias in nodes_of(path, ast.alias):
        names |= {alias.asname or alias.name, *alias.name.split(".")}
    texts = [node.value for node in nodes_of(path, ast.Constant) if isinstance(node.value, str)]
    return frozenset(names.union(*(re.findall(r"\w+", text) for text in texts if "`" not in text)))


def _exists(dotted: str) -> bool:
    """True for a module, or a name in one, whatever is looked up in that."""
    parts = dotted.split(".")
    longest = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in _modules()), 0)
    if longest == len(parts):
        return True
    return longest > 0 and parts[longest] in _names(_modules()[".".join(parts[:longest])])


def test_a_file_that_is_named_with_its_folder_exists() -> None:
    """A path may begin at any room: `proof/repair.py` is `lakeproof/proof/repair.py`."""
    files = [f"/{path.relative_to(ROOT)}" for path in _modules().values()]
    faults = [
        f"{place}: {file}"
        for place, span in _spans()
        for file in _FILE.findall(span)
        if not any(path.endswith(f"/{file}") for path in files)
    ]
    assert faults == []


def test_a_module_or_a_name_in_one_exists() -> None:
    """Named from a room on: `lakeproof.proof.tables`, `bench.ingest.drain`, `lakeproof.lake.fold.toast.DRIVER_MOVES_MAX`."""
    faults = [
        f"{place}: {name}"
        for place, span in _spans()
        for name in _DOTTED.findall(span)
        if name not in _NO_MODULES and not _exists(name)
    ]
    assert faults == []


def _sections(model: type[Model], sections: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the keys of each section of `lakeproof.yaml` by the section's own name."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Model):
            sections.setdefault(name, set()).update(field.annotation.model_fields)
            _sections(field.annotation, sections)
    return sections


def test_a_setting_exists() -> None:
    """A name of that form may also be an event, or a module: `drain.rates`, `snapshot.paused`."""
    sections = _sections(SourceConfig, _sections(Config, {}))
    modules = {".".join(name.split(".")[-2:]) for name in _modules()}
    texts = {node.value for path in _modules().values() for node in nodes_of(path, ast.Constant)}
    faults = [
        f"{place}: {span}"
        for place, span in _spans()
        if (setting := _SETTING.fullmatch(span))
        and setting[1] in _SECTIONS
        and setting[2] not in sections.get(setting[1], set()) | {"py"}
        and f"{setting[1]}.{setting[2]}" not in texts | modules
    ]
    assert faults == []


def test_a_name_of_the_code_in_a_docstring_or_comment_exists() -> None:
    """A function that was renamed is renamed in the heads that name it."""
    names = frozenset().union(*(_names(path) for path in _modules().values() if path != Path(__file__)))
    names |= {part for name in _modules() for part in name.split(".")}
    faults = [
        f"{place}: {name}"
        for place, span in _spans()
        if ".py" in place
        for name in _NAME.findall(span)
        if name not in names | _NO_NAMES
    ]
    assert faults == []
