"""Reads from the source every error and every finding that a person can see: kind, thing, reason and remedy.

`reference.py` puts them on pages. Nothing is imported: a text is put together from the syntax tree, with `{name}` for what
is known only when the error is raised.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lakeproof.errors import manual
from scripts.source_trees import nodes_of, tree_of

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("lakeproof", "resources", "assets", "jobs", "orchestration", "lakeproof_dagster")
_BASE = "LakeproofError"
_TRY_AGAIN = "TransientError"
_OWN_MISTAKE = "InvariantError"
_FINDINGS = {"error", "warning", "note"}
_FINDINGS_MODULE = "lakeproof.postgres.checks.findings"
_PARTS = ("thing", "reason", "remedy")
# Modules of the configuration with functions that return what is wrong with a value.
_PHRASES = {"load", "mistakes", "sections", "selection"}
# A text that is put together from more names than this is cut: it would be a program.
_DEPTH_MAX = 8
_Around = TypeVar("_Around", ast.ClassDef, ast.FunctionDef | ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, order=True)
class ErrorText:
    """An error or a finding: its module, the group of its kind, its class, and its three parts."""

    module: str
    group: str
    kind: str
    thing: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.thing}: {self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Module:
    name: str
    path: Path
    # Names that are assigned once at the top, and names that are imported.
    values: dict[str, ast.expr]
    imports: dict[str, tuple[str, str]]


@functools.cache
def _modules() -> dict[str, _Module]:
    paths = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return {module.name: module for module in map(_read, paths)}


def _read(path: Path) -> _Module:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    values = {
        node.targets[0].id: node.value
        for node in tree_of(path).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    imports = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in nodes_of(path, ast.ImportFrom)
        for alias in node.names
        if node.module
    }
    return _Module(name, path, values, imports)


@functools.cache
def kinds() -> dict[str, str]:
    """Return the base of each class of errors, down from the one that all have."""
    bases = {
        node.name: base.id
        for module in _modules().values()
        for node in nodes_of(module.path, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    tree = {_BASE: ""}
    while more := {name: base for name, base in bases.items() if base in tree and name not in tree}:
        tree |= more
    return tree


def group(kind: str) -> str:
    """Return what to do about a kind of error: try again, change something, or report it."""
    while kind not in {_TRY_AGAIN, _OWN_MISTAKE, _BASE, "finding"}:
        kind = kinds()[kind]
    return {_TRY_AGAIN: "try again", _OWN_MISTAKE: "report it", "finding": "finding"}.get(kind, "change something")


@functools.cache
def texts() -> tuple[ErrorText, ...]:
    """Return every error and finding, each text once per module."""
    return tuple(sorted({text for module in _modules().values() for text in _of_module(module)}))


def mistakes() -> list[str]:
    """Return what can be wrong with a key or a value of the configuration."""
    actual = set()
    for module in _modules().values():
        if not module.name.startswith("lakeproof.config."):
            continue
        for call in nodes_of(module.path, ast.Call):
            called = ast.unparse(call.func)
            is_mistake = (called, len(call.args)) in {("Mistake", 3), ("ValueError", 1)}
            if is_mistake or (called.endswith("document.add") and len(call.args) == 2):
                actual.add(_Names(module, _assigned(module, call)).text(call.args[-1]))
        if module.name.rpartition(".")[2] in _PHRASES:
            actual |= set(_phrases(module))
        for name in ("_LIMITS", "_TYPES"):
            actual |= set(_values(module, name))
    return sorted(text for text in actual if not text.startswith("{") or text.count(" ") > 1)


def _phrases(module: _Module) -> Iterator[str]:
    """Yield the sentences that functions of a module give to whoever adds the mistake."""
    for node in nodes_of(module.path, ast.Return, ast.Yield):
        if isinstance(node.value, ast.JoinedStr):
            text = _Names(module, _assigned(module, node)).text(node.value)
            if len(re.sub(r"\{.*?\}", "", text).split()) > 1:
                yield text


def held() -> tuple[list[str], list[str]]:
    """Return the reasons for which a table is held, and the remedies."""
    module = _modules()["lakeproof.lake.records.held"]
    reasons = [text for text in (*_values(module, "_REASONS"), *_values(module, "_DIFFERENCES")) if " " in text]
    for function in nodes_of(module.path, ast.FunctionDef):
        if function.name in {"_reason", "_catalog_reason"}:
            returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
            names = _Names(module, {})
            reasons += [names.text(value) for value in returned if isinstance(value, ast.JoinedStr)]
    return sorted(set(reasons)), sorted(_values(module, "_REMEDIES"))


def _values(module: _Module, name: str) -> list[str]:
    """Return the texts of a dictionary at the top of a module."""
    for node in tree_of(module.path).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id == name:
            values = (part.elts[-1] if isinstance(part, ast.Tuple) else part for part in node.value.values)
            return [_Names(module, {}).text(value) for value in values]
    return []


def _of_module(module: _Module) -> Iterator[ErrorText]:
    for call in nodes_of(module.path, ast.Call):
        kind = _kind(module, call)
        if kind is None or len(call.args) + len(call.keywords) < len(_PARTS):
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords} | dict(zip(_PARTS, call.args, strict=False))
        if any(isinstance(argument, ast.Starred) for argument in call.args) or not set(_PARTS) <= set(given):
            continue
        names = _Names(module, _assigned(module, call))
        thing, reason, remedy = (" ".join(names.text(given[part]).split()) for part in _PARTS)
        if reason.startswith("{") and reason.endswith("}") and reason.count("{") == 1:
            # Another error's text, put into this one.
            continue
        if kind == "finding" and thing in {"{table}", "{name}"}:
            thing = f"table {thing}"
        yield ErrorText(module.name, group(kind), kind, thing, reason, remedy)


def _innermost(around: Sequence[_Around], node: ast.stmt | ast.expr) -> _Around | None:
    """Return that of these functions, or classes, in which a node stands, and which is in none of the others."""
    mine = [one for one in around if one.lineno <= node.lineno <= (one.end_lineno or 0)]
    return max(mine, key=lambda one: one.lineno, default=None)


def _kind(module: _Module, call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        if call.func.attr == "__init__" and ast.unparse(call.func.value) == "super()":
            owner = _innermost(nodes_of(module.path, ast.ClassDef), call)
            return owner.name if owner is not None and owner.name in kinds() and owner.name != _BASE else None
        return "finding" if call.func.attr in _FINDINGS and "findings" in ast.unparse(call.func.value) else None
    if not isinstance(call.func, ast.Name):
        return None
    name = module.imports.get(call.func.id, (module.name, call.func.id))
    if name[0] == _FINDINGS_MODULE and name[1] in _FINDINGS:
        return "finding"
    return name[1] if name[1] in kinds() and name[1] != _BASE else None


def _assigned(module: _Module, use: ast.stmt | ast.expr) -> dict[str, list[ast.expr]]:
    """Return what a function's names are given last before they are used, and in the other branches of the same `if`."""
    function = _innermost(nodes_of(module.path, ast.FunctionDef, ast.AsyncFunctionDef), use)
    line = use.lineno
    given: dict[str, list[tuple[ast.Assign, ast.AST | None]]] = {}
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(function, None)] if function else []
    while waiting:
        node, branch = waiting.pop()
        if isinstance(node, ast.If) and branch is None and (node.end_lineno or 0) < line:
            branch = node
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.lineno < line:
            given.setdefault(node.targets[0].id, []).append((node, branch))
        waiting += [(child, branch) for child in ast.iter_child_nodes(node)]
    values: dict[str, list[ast.expr]] = {}
    for name, assignments in given.items():
        last, branch = max(assignments, key=lambda pair: pair[0].lineno)
        same = [node for node, other in assignments if branch is not None and other is branch]
        values[name] = [node.value for node in sorted(same or [last], key=lambda node: node.lineno)]
    return values


@dataclass(frozen=True, slots=True)
class _Names:
    """The values of names in an expression: those of the function, of the module, of the modules imported from."""

    module: _Module
    local: dict[str, list[ast.expr]]
    depth: int = 0

    def text(self, node: ast.expr) -> str:
        """Return an expression as a text, with `{name}` for what is not known before."""
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.JoinedStr(values=parts):
                return "".join(
                    self.text(part.value if isinstance(part, ast.FormattedValue) else part) for part in parts
                )
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.text(left) + self.text(right)
            case ast.IfExp(body=body, orelse=other):
                return " / ".join(filter(None, (self.text(body), self.text(other))))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return " / ".join(self.text(part) for part in parts)
            case ast.Call(
                func=ast.Name(id="manual"), args=[ast.Constant(value=str(page)), ast.Constant(value=str(section))]
            ):
                return manual(page, section)
            case ast.Name(id=name):
                return self._name(name)
        return "{" + _short(node) + "}"

    def _name(self, name: str) -> str:
        if self.depth < _DEPTH_MAX:
            if name in self.local and all(map(_is_text, self.local[name])):
                others = {other: values for other, values in self.local.items() if other != name}
                names = _Names(self.module, others, self.depth + 1)
                return " / ".join(dict.fromkeys(map(names.text, self.local[name])))
            if name in self.module.values and _is_text(self.module.values[name]):
                return _Names(self.module, {}, self.depth + 1).text(self.module.values[name])
            origin = _modules().get(self.module.imports.get(name, ("", ""))[0])
            if origin is not None:
                return _Names(origin, {}, self.depth + 1).text(ast.Name(self.module.imports[name][1]))
        return "{" + name.strip("_").lower() + "}"


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and _is_text(node.left)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "manual"
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _short(node: ast.expr) -> str:
    """Return a name for a value: `source.name` is the source, `paths.url(key)` the path."""
    match node:
        case ast.Attribute(value=value, attr="name"):
            return _short(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.strip("_")
        case ast.Call(func=ast.Attribute(value=ast.Constant()), args=[argument, *_]):
            return _short(argument)
        case ast.Call(func=ast.Name(id="str" | "repr" | "len" | "sorted" | "printable"), args=[argument, *_]):
            return _short(argument)
        case ast.Call(func=function):
            return _short(function)
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return _short(value)
        case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
            return _short(element)
    return "…"
