"""Counts the code: lines and modules by room, files per folder, wide functions, the longest chain of imports, `Any`.

    .venv/bin/python scripts/counts.py

Judging the figures does not belong here: the rules are in `tests/test_tidy.py` and in the contracts of `pyproject.toml`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DAGSTER = ("orchestration", "jobs", "assets", "resources", "lakeproof_dagster")
TESTS = "tests"
# The greatest number of parameters that a function may have; a compiled loop takes each buffer by itself.
PARAMETERS_MAX = 6
_ANY, _CAST = re.compile(r"\bAny\b"), re.compile(r"(?<![.\w])cast\(")
_LOOP = re.compile(r"@\s*(compiled|loop|njit|numba)")


def files() -> Iterator[tuple[str, str]]:
    """Yield each Python file that git has, with its text."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if (ROOT / name).exists():
            yield name, (ROOT / name).read_text(encoding="utf-8")


def room(name: str) -> str:
    """Return the room of a file: two parts of its path in the engine and the tests, else one."""
    parts = name.split("/")
    return "/".join(parts[: 2 if parts[0] in {"lakeproof", TESTS} and len(parts) > 2 else 1])


def wide(name: str, text: str) -> Iterator[str]:
    """Yield the functions with too many parameters, `self` not counted."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        number = len([each for each in every if each.arg not in {"self", "cls"}])
        is_loop = any(
            _LOOP.match(lines[each.lineno - 2]) or _LOOP.match("@" + ast.unparse(each)) for each in node.decorator_list
        )
        if number > PARAMETERS_MAX and not is_loop:
            yield f"{name}:{node.lineno} {node.name} ({number})"


def imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports when it is imported itself."""
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in sources}
    arrows: dict[str, set[str]] = defaultdict(set)
    for module, name in names.items():
        for node in ast.parse(sources[name]).body:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                of = {f"{node.module}.{each.name}" for each in node.names}
                arrows[module] |= {each if each in names else node.module for each in of} & names.keys()
            elif isinstance(node, ast.Import):
                arrows[module] |= {each.name for each in node.names} & names.keys()
        arrows[module].discard(module)
    return arrows


def longest(arrows: Mapping[str, set[str]]) -> list[str]:
    """Return the longest chain of imports; a circle would have ended the import itself."""

    @cache
    def chain(module: str) -> tuple[str, ...]:
        chains = [chain(each) for each in sorted(arrows.get(module, ()))]
        return (module, *max(chains, key=len, default=()))

    deepest = max((chain(module) for module in sorted(arrows)), key=len)
    return list(deepest)


def main() -> None:
    """Print the counts as tables of Markdown."""
    sys.setrecursionlimit(10_000)
    sources = dict(files())
    lines, modules, folders = Counter[str](), Counter[str](), Counter[str]()
    for name, text in sources.items():
        lines[room(name)] += text.count("\n")
        modules[room(name)] += 1
        folders[str(Path(name).parent)] += 1
    print("| room | lines | modules |\n|---|--:|--:|")
    for each in sorted(lines):
        print(f"| {each} | {lines[each]:,} | {modules[each]} |")
    parts = {"engine": ("lakeproof",), "Dagster half": DAGSTER, TESTS: (TESTS,)}
    for title, roots in parts.items():
        own = [each for each in lines if each.split("/")[0] in roots]
        print(f"| **{title}** | {sum(lines[e] for e in own):,} | {sum(modules[e] for e in own)} |")
    product = {name: text for name, text in sources.items() if name.split("/")[0] in {"lakeproof", *DAGSTER}}
    print("\nFolders with more than 15 modules: ", end="")
    print(", ".join(f"{f} {n}" for f, n in sorted(folders.items()) if n > 15) or "none")
    found_wide = [each for name, text in product.items() for each in wide(name, text)]
    print(f"\nFunctions with more than {PARAMETERS_MAX} parameters, compiled loops aside: {len(found_wide)}")
    print("".join(f"\n- {each}" for each in found_wide))
    chain = longest(imports(product))
    print(f"\nLongest chain of imports: {len(chain)} modules\n\n{' → '.join(chain)}")
    of_lines = [line for text in product.values() for line in text.splitlines()]
    untyped, casts = (sum(each.search(line) is not None for line in of_lines) for each in (_ANY, _CAST))
    print(f"\nLines with `Any`: {untyped}, with `cast` of types: {casts}")


if __name__ == "__main__":
    main()
