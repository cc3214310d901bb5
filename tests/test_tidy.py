"""Rules about the source itself: sizes, docstrings, names, SQL, links, what lies at the root.

Rules that ruff, mypy and the import contracts can check stand in pyproject.toml, not here.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.source_trees import ROOT, nodes_of, python_files, text_of, tree_of

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
SMALL_LINES_MAX = 150
FUNCTION_LINES_MEDIAN_MAX = 10
FILE_BYTES_MAX = 1 << 20
TEST_FOLDER_FILES_MAX = 15

_JUNK_DRAWERS = {"common", "core", "helper", "helpers", "misc", "shared", "stuff", "util", "utils"}
_MADE = {
    ".git", ".venv", ".cache", ".state", "__pycache__",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache",
}  # fmt: skip
_AT_THE_ROOT = {
    ".ci", ".dockerignore", ".github", ".gitignore",
    "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
    "assets", "bench", "demo", "docker", "docs", "jobs", "orchestration", "resources", "scripts", "tests", "lakeproof",
    "lakeproof_dagster", "mkdocs.yml", "pyproject.toml", "requirements.lock", "workspace.yaml",
}  # fmt: skip
# Put together here, so that this file doesn't break its own rule.
_REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("registry", "npmjs"), ("repo1", "maven"), ("repo", "maven"),
        ("crates", "io"), ("proxy", "golang"), ("registry-1", "docker"),
    )
)  # fmt: skip
# Whatever takes SQL as its first argument: psycopg's cursors and connections, and psycopg.sql.
_TAKE_SQL = {"execute", "executemany", "copy", "stream", "SQL"}


@functools.cache
def _all_files() -> list[Path]:
    actual = []
    for folder, folders, names in os.walk(ROOT):
        # Not entered at all: an environment has 30,000 files.
        folders[:] = [name for name in folders if name not in _MADE]
        actual += [Path(folder) / name for name in names]
    return sorted(actual)


def _files(*suffixes: str) -> list[Path]:
    return [path for path in _all_files() if not suffixes or path.suffix in suffixes]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes_of(path, ast.FunctionDef, ast.AsyncFunctionDef):
        yield f"{_name(path)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def _none(actual: list[str], rule: str) -> None:
    if actual:
        pytest.fail(rule + ":\n  " + "\n  ".join(actual), pytrace=False)


def test_no_file_is_longer_than_400_lines() -> None:
    """A file that does not fit its limit holds two subjects."""
    lengths = {_name(path): len(text_of(path).splitlines()) for path in python_files()}
    _none([f"{name}: {n}" for name, n in lengths.items() if n > FILE_LINES_MAX], f"more than {FILE_LINES_MAX} lines")


def test_no_function_is_longer_than_70_lines() -> None:
    """A function fits on a screen."""
    actual = [
        f"{name}: {lines}" for path in python_files() for name, lines in _functions(path) if lines > FUNCTION_LINES_MAX
    ]
    _none(actual, f"more than {FUNCTION_LINES_MAX} lines")


def test_the_median_function_of_the_engine_is_short() -> None:
    """The limit is for the exception; most functions are leaves."""
    lengths = [
        lines for path in python_files() if _name(path).startswith("lakeproof/") for _, lines in _functions(path)
    ]
    assert statistics.median(lengths) <= FUNCTION_LINES_MEDIAN_MAX


def test_every_module_says_what_it_is_for_and_a_large_one_what_else_is_to_be_known() -> None:
    """The docstring's first sentence; a module of more than `SMALL_LINES_MAX` lines has a second one."""
    actual = []
    for path in python_files():
        docstring = ast.get_docstring(tree_of(path)) or ""
        sentences = len(re.findall(r"[.:;](\s|$)", docstring))
        is_small = len(text_of(path).splitlines()) <= SMALL_LINES_MAX
        expected = 1 if is_small or path.name == "__init__.py" or _name(path).startswith("tests/") else 2
        if sentences < expected:
            actual.append(f"{_name(path)}: {docstring.splitlines()[:1] or 'no docstring'}")
    _none(actual, "no docstring, or only one sentence for a large module")


def test_no_module_is_a_junk_drawer() -> None:
    """A file is named after its subject."""
    actual = [_name(path) for path in python_files() if path.stem in _JUNK_DRAWERS]
    folders = {_name(path.parent) for path in python_files() if path.parent.name in _JUNK_DRAWERS} - {"tests/core"}
    _none(actual + sorted(folders), "named after nothing")


def test_no_folder_of_tests_has_more_than_15_modules() -> None:
    """A folder has one subject, as a room has; scenarios alone are a list, in which a failure is looked up by its name."""
    counts = Counter(_name(path.parent) for path in python_files() if _name(path).startswith("tests/"))
    del counts["tests/scenarios"]
    _none([f"{folder}: {n}" for folder, n in counts.items() if n > TEST_FOLDER_FILES_MAX], "more than 15 modules")


def test_no_test_module_is_imported() -> None:
    """Tests share fixtures (`fix_*.py`) and modules named after their subject: a test file can go without another one."""
    imports = [
        f"{_name(path)}:{node.lineno}: {name}"
        for path in python_files()
        for node in nodes_of(path, ast.Import, ast.ImportFrom)
        for name in _imported(node)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    ]
    _none(imports, "imported test modules")


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import may load: `from a import b` may be the module `a` or `a.b`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def test_no_sql_for_postgresql_is_put_together_by_formatting() -> None:
    """Identifiers and values go through psycopg.sql or as parameters."""
    actual = [
        f"{_name(path)}:{node.lineno}"
        for path in python_files()
        if not _name(path).startswith("tests/")
        for node in nodes_of(path, ast.Call)
        if _called(node) in _TAKE_SQL and node.args and _is_formatted(node.args[0])
    ]
    _none(actual, "SQL by an f-string, %, + or format()")


def test_sql_for_postgresql_is_ascii() -> None:
    """A server converts all of a statement, comments too, and refuses it if its encoding lacks a character."""
    actual = [
        f"{_name(path)}:{node.lineno}"
        for path in python_files()
        if _name(path).startswith("lakeproof/")
        for node in _sql_texts(path)
        if not str(node.value).isascii()
    ]
    _none(actual, "SQL that a database in LATIN1 would refuse")


def test_names_of_hidden_columns_stand_in_one_file() -> None:
    """The engine takes the format's names, and the prefix of scratch columns, from `hidden_columns`."""
    faults = [
        f"{_name(path)}:{node.lineno}"
        for path in python_files()
        if _name(path).startswith("lakeproof/") and path.name != "hidden_columns.py"
        for node in _texts(path)
        if "_lp_" in str(node.value)
    ]
    _none(faults, "the name of a hidden or scratch column in a literal")


def _texts(path: Path) -> Iterator[ast.Constant]:
    """Give the strings of a module, docstrings left out."""
    docstrings = {id(node.value) for node in nodes_of(path, ast.Expr)}
    for node in nodes_of(path, ast.Constant):
        if isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def _sql_texts(path: Path) -> Iterator[ast.Constant]:
    given = {
        id(part)
        for node in nodes_of(path, ast.Call)
        if _called(node) in _TAKE_SQL and node.args
        for part in ast.walk(node.args[0])
    }
    for node in _texts(path):
        # A template is a constant before it is SQL.
        if id(node) in given or re.search(r"\b(SELECT|UNION|WHERE)\b", str(node.value)):
            yield node


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_formatted(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(value, ast.FormattedValue) for value in node.values)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mod | ast.Add) and isinstance(node.left, ast.Constant | ast.JoinedStr)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
        and isinstance(node.func.value, ast.Constant)
    )


def test_every_exception_to_a_tool_has_a_code_and_a_reason_on_its_line() -> None:
    """`# noqa: S608  (why)` and `# type: ignore[arg-type]  # why`, never bare."""
    actual = []
    for path in python_files():
        for number, line in enumerate(text_of(path).splitlines(), start=1):
            comment = re.search(
                r"# (noqa|type: ignore)(?P<code>(: ?[A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*|\[[\w, -]+\])?)(?P<why>.*)", line
            )
            if comment and path != Path(__file__) and not (comment["code"] and len(comment["why"].strip(" #()")) > 3):
                actual.append(f"{_name(path)}:{number}")
    _none(actual, "an exception without a code or a reason")


def test_every_patch_of_an_inside_says_why_no_outside_shows_it() -> None:
    """`# inside: why` on its line or above: configuration, failpoints and real faults come before `monkeypatch.setattr`."""
    faults = []
    for path in python_files():
        lines = text_of(path).splitlines()
        for node in nodes_of(path, ast.Call) if _name(path).startswith("tests/") else ():
            if isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
                above = lines[node.lineno - 2].strip()
                own = lines[node.lineno - 1 : node.end_lineno]
                if not any("# inside: " in line for line in own) and not above.startswith("# inside: "):
                    faults.append(f"{_name(path)}:{node.lineno}")
    _none(faults, "a patched inside without a reason")


_SENTENCES = {"reason", "message", "remedy", "thing"}
_TEXT_METHODS = {
    "count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit",
    "split", "startswith",
}  # fmt: skip
_PATTERN_METHODS = {"findall", "finditer", "fullmatch", "match", "search", "split", "sub"}
# Texts of others, of which there is no value to ask for.
_FOREIGN_TEXTS = {
    "lakeproof/lake/rows/refusal.py": "Spark gives a refusal back as the text of its own exception, with our mark in it",
    "lakeproof/lake/cycle/upkeep/logs.py": "Delta says in a text alone which commits can't be taken back",
    "lakeproof/lake/spark/driver.py": "Spark and py4j say in a text alone that their context has ended",
    "lakeproof/storage/object/errors.py": "obstore gives a store's status and code in the text of its error alone",
    "lakeproof/expectations/evaluate.py": "a text of Great Expectations is put on one line to be shown",
}


def test_no_code_reads_a_sentence() -> None:
    """Code decides on values: a better message must change nothing but the message."""
    faults = [
        f"{_name(path)}:{node.lineno}"
        for path in python_files()
        if path.relative_to(ROOT).parts[0] not in {"tests", "bench", "demo", "scripts"}
        if _name(path) not in _FOREIGN_TEXTS
        for node in nodes_of(path, ast.Compare, ast.Call)
        if _reads_a_sentence(node)
    ]
    _none(faults, "a comparison, search or replacement in a sentence for people")
    _none([name for name in _FOREIGN_TEXTS if not (ROOT / name).exists()], "excused and not there")


def _reads_a_sentence(node: ast.Compare | ast.Call) -> bool:
    if isinstance(node, ast.Compare):
        texts = isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        return texts and any(map(_is_sentence, [node.left, *node.comparators]))
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in _PATTERN_METHODS and any(map(_is_sentence, node.args)):
        return True
    return node.func.attr in _TEXT_METHODS and _is_sentence(node.func.value)


def _is_sentence(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _SENTENCES
    # The text of an exception.
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
        and any(isinstance(a, ast.Name) and a.id in {"error", "failure", "refusal"} for a in node.args)
    )


def test_nothing_is_left_to_do_in_a_comment() -> None:
    """Work that is not done is in docs/not-supported.md, where its reader looks."""
    marks = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")))
    actual = [
        f"{_name(path)}:{number}"
        for path in _files(".py", ".md", ".sql", ".yaml", ".toml", ".sh")
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if marks.search(line)
    ]
    _none(actual, "left to do")


def test_no_file_names_a_package_registry() -> None:
    """The installer's configuration says where packages come from, not the project's."""
    actual = []
    for path in _files():
        text = path.read_text(encoding="utf-8", errors="replace")
        actual += [f"{_name(path)}: {host}" for host in _REGISTRIES if host in text]
    _none(actual, "a registry's host name")


def test_every_link_in_the_documentation_leads_somewhere() -> None:
    """Relative links name files that exist, and headings that are there."""
    actual = []
    for path in _files(".md"):
        for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", _without_code(text_of(path))):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            other = (path.parent / file).resolve() if file else path
            if not other.exists():
                actual.append(f"{_name(path)}: {target}")
            elif anchor and anchor not in _anchors(other):
                actual.append(f"{_name(path)}: {target} (no such heading)")
    _none(actual, "broken links")


def test_messages_name_pages_of_the_manual_that_are_there_and_no_files() -> None:
    """An installed package has no folder `docs`: messages name a page and a section by their titles, which must exist."""
    titles: dict[str, set[str]] = {}
    for path in sorted((ROOT / "docs").glob("*.md")):
        first, *rest = re.findall(r"^#+ (.+)$", text_of(path), flags=re.MULTILINE)
        titles[first] = set(rest)
    actual = []
    for path in _files(".py"):
        if path.relative_to(ROOT).parts[0] in {"tests", "bench", "scripts", "demo"}:
            continue
        for text in _texts(path):
            actual += [f"{_name(path)}:{text.lineno}: {w}" for w in re.findall(r"docs/\S+|README\S*", str(text.value))]
        for node in nodes_of(path, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "manual":
                page, section = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
                if section not in titles.get(str(page), set()):
                    actual.append(f"{_name(path)}:{node.lineno}: no section {section!r} on a page {page!r}")
    _none(actual, "places that a message names")


def _without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text_of(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_root_holds_what_the_build_and_the_reader_need() -> None:
    """Everything else has a room."""
    # What a person's own work may leave there is git's to ignore.
    ignored = {line.strip().strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
    actual = {path.name for path in ROOT.iterdir()} - _AT_THE_ROOT - _MADE - ignored
    _none(sorted(actual), "at the root")


def test_no_file_is_a_large_blob() -> None:
    """Nothing that a clone would carry for ever."""
    _none([_name(path) for path in _files() if path.stat().st_size > FILE_BYTES_MAX], "more than 1 MiB")


def test_the_docker_folder_is_no_package() -> None:
    """An __init__.py would hide the Docker SDK, which Dagster's launcher imports."""
    assert not (ROOT / "docker" / "__init__.py").exists()
