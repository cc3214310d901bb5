"""Rules about the prose of the source and of the pages: what can be counted of plain English.

Sizes, docstrings that are missing and links are in `test_tidy.py`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.source_trees import comments_of, docstrings_of, nodes_of, text_of

ROOT = Path(__file__).resolve().parent.parent
_SHELL = ("resources", "assets", "jobs", "orchestration")
_OPENINGS = {"What", "Whether", "How", "Where", "Which", "Why", "When", "Whose"}
_NAMES = {"found", "told", "made", "wanted", "said", "known", "at"}
# The keyword with which a reader says which cut, position or time a lake is opened at.
_PUBLIC = {
    (f"lakeproof/lake/{name}.py", "at")
    for name in ("read/spark/open", "read/spark/as_of", "read/arrow/open", "records/cuts/choice")
}
# A room with few words has no rate: so many more than the limit allows are no fault.
_SLACK = 2
# Verbs of speech for what is reported, shown, recorded or known, and conjunctions that no sentence begins with.
_SPEECH = re.compile(r"\b(?:told|tells|telling|said)\b", re.IGNORECASE)
_FRAGMENTS = {"And", "Nor", "Neither", "Or", "Of", "Also"}
_CLAUSES = re.compile(r"(?<=[.:;]) ")
_NOT_BELONGING = re.compile(
    r"(What|Whether|How|Where|Which|Who|Why|When)\b.*\bbelongs? |.*\bdoes does\b", re.IGNORECASE
)
OPENINGS_MAX = 0.01
WHERE_PER_IF_MAX = 0.5


def _room(path: Path) -> str:
    """Return the room of a file: a folder of the engine, `lakeproof` for its root, or a folder of the repository."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "lakeproof" and len(parts) > 2:
        return f"lakeproof/{parts[1]}"
    return "shell" if parts[0] in _SHELL else parts[0]


@functools.cache
def _modules() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for folder in ("lakeproof", *_SHELL, "demo", "bench", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            rooms.setdefault(_room(path), []).append(path)
    return rooms


def _pages() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "lakeproof").rglob("*.md")]
    return sorted(path for path in pages if path.name != "CHANGELOG.md")


def _defined_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names of variables, parameters and attributes where they are defined."""
    for node in nodes_of(path, ast.arg, ast.ExceptHandler, ast.MatchAs, ast.Name, ast.Attribute):
        match node:
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


@functools.cache
def _prose(path: Path) -> str:
    """Return the sentences of a file: of a page all but its code, of a module its comments and docstrings."""
    if path.suffix == ".md":
        return re.sub(r"```.*?```|`[^`\n]*`", "", text_of(path), flags=re.DOTALL)
    return "\n".join([*comments_of(path), *(docstring for _, docstring in docstrings_of(path))])


def _fail_if(faults: list[str], rule: str) -> None:
    if faults:
        pytest.fail(rule + ":\n  " + "\n  ".join(faults), pytrace=False)


def _openings(room: str) -> tuple[list[str], int]:
    """Return the places of the docstrings that begin with a question word, and the number of all docstrings."""
    docstrings = [(path, line, text) for path in _modules()[room] for line, text in docstrings_of(path)]
    places = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path, line, text in docstrings
        if re.split(r"\W", text, maxsplit=1)[0] in _OPENINGS
    ]
    return places, len(docstrings)


def _participles(room: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in _modules()[room]
        for line, name in _defined_names(path)
        if name in _NAMES and (str(path.relative_to(ROOT)), name) not in _PUBLIC
    ]


def _wheres(paths: list[Path]) -> tuple[int, int]:
    """Return the numbers of "where" and of "if"; SQL's own WHERE is written in capitals."""
    text = "\n".join(map(_prose, paths))
    return len(re.findall(r"\b[Ww]here\b", text)), len(re.findall(r"\b[Ii]f\b", text))


@pytest.mark.parametrize("room", sorted(_modules()))
def test_docstrings_begin_with_a_verb_or_a_noun(room: str) -> None:
    """`Return …`, `Raise …`, `True if …`, or the thing's name: never the beginning of a subordinate clause."""
    places, docstrings = _openings(room)
    share = len(places) / max(docstrings, 1)
    if share > OPENINGS_MAX:
        _fail_if(places, f"{room}: {share:.3f} of {docstrings} docstrings begin with a question word")


@pytest.mark.parametrize("room", sorted(_modules()))
def test_docstrings_are_no_fragments(room: str) -> None:
    """A docstring is understood without its test's name: it does not begin in the middle of a sentence."""
    places = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in _modules()[room]
        for line, text in docstrings_of(path)
        if re.split(r"\W", text, maxsplit=1)[0] in _FRAGMENTS
    ]
    _fail_if(places, f"{room}: docstrings that begin with {', '.join(sorted(_FRAGMENTS))}")


@pytest.mark.parametrize("room", sorted(_modules().keys() - {"tests"}))
def test_what_does_not_belong_in_a_module_is_named_by_a_noun(room: str) -> None:
    """No sentence is about what something does, and then about it not belonging: the place that has it is named instead."""
    places = [
        f"{path.relative_to(ROOT)}:{line}: {clause.strip()[:100]}"
        for path in _modules()[room]
        for line, text in docstrings_of(path)
        for clause in _CLAUSES.split(" ".join(text.split()))
        if _NOT_BELONGING.match(clause.strip())
    ]
    _fail_if(places, f"{room}: what … does not belong here")


@pytest.mark.parametrize("room", sorted([*_modules(), "docs"]))
def test_nothing_is_told(room: str) -> None:
    """Things are reported, shown, recorded, named or known; rows and columns are distinguished."""
    paths = _pages() if room == "docs" else _modules()[room]
    places = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path in paths
        for line in _prose(path).splitlines()
        if _SPEECH.search(line)
    ]
    _fail_if(places, f"{room}: told, tells, telling or said")


@pytest.mark.parametrize("room", sorted(_modules()))
def test_no_name_is_a_participle(room: str) -> None:
    """A variable is called after what it holds: `rows`, `existing`, `message`, `expected`."""
    places = _participles(room)
    _fail_if(places, f"{room}: {len(places)} names out of {', '.join(sorted(_NAMES))}")


@pytest.mark.parametrize("room", sorted([*_modules(), "docs"]))
def test_where_is_for_places(room: str) -> None:
    """Conditions are written with `if` and `when`."""
    wheres, ifs = _wheres(_pages() if room == "docs" else _modules()[room])
    allowed = round(WHERE_PER_IF_MAX * max(ifs, 1)) + _SLACK
    assert wheres <= allowed, f"{room}: {wheres} times where, {ifs} times if"
