"""Changes one place of the engine at a time, and asks the tests of tests/core that import the file if they notice.

    .venv/bin/python scripts/mutants.py --count 40 --seed 1 --limit-s 1800

It prints a row for each mutant: the place, the change, and the first test that failed, or that it survived. A survivor is a
place that no test of its own looks at: a test with a server or Spark may still notice. The checkout is not touched: mutants
are made in a copy. Compiled loops are left out, since a cached caller would keep the loop that it was compiled with.
`docs/testing.md` has the last table; nothing here is shipped.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.changed import covering

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("drain", "pgoutput", "values", "lake")
_COPIED = ("lakeproof", "tests", "scripts", "demo", "bench", "docs", "resources", "assets", "jobs", "orchestration")
_OTHER: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"),
}  # fmt: skip
# A mutant that waits for ever has been noticed.
_RUN_S = 600.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file, the place in it, and the text that stands there instead of another."""

    path: str
    line: int
    first: int
    last: int
    before: str
    after: str

    def apply(self, text: str) -> str:
        """Return the file's text with the change."""
        lines = text.split("\n")
        octets = lines[self.line - 1].encode()
        lines[self.line - 1] = (octets[: self.first] + self.after.encode() + octets[self.last :]).decode()
        return "\n".join(lines)


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file: operators, comparisons, constants, calls for their effect."""
    text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    tree, lines = ast.parse(text), text.split("\n")
    left_out = {id(inner) for node in ast.walk(tree) for part in _not_of_the_work(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in left_out or getattr(node, "end_lineno", 0) != getattr(node, "lineno", -1):
            continue
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) | ast.BinOp(left=left, op=op, right=right):
                yield from _operator(name, lines, left, op, right)
            case ast.BoolOp(op=op, values=[left, right]):
                yield from _operator(name, lines, left, op, right)
            case ast.Constant(value=bool(value)):
                yield Mutant(name, node.lineno, node.col_offset, node.end_col_offset or 0, str(value), str(not value))
            case ast.Constant(value=int(value)):
                yield Mutant(name, node.lineno, node.col_offset, node.end_col_offset or 0, str(value), str(value + 1))
            case ast.Expr(value=ast.Call()):
                before = ast.unparse(node)
                yield Mutant(name, node.lineno, node.col_offset, node.end_col_offset or 0, before, "pass")


def _not_of_the_work(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what no test of behaviour looks at: annotations, texts of errors, failpoints."""
    match node:
        case ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.Raise():
            yield node
        case ast.Call(func=ast.Name(id="failpoint")) | ast.Expr(value=ast.Call(func=ast.Name(id="failpoint"))):
            yield node
        case ast.FunctionDef(args=arguments, returns=returns, decorator_list=decorators):
            yield from [a.annotation for a in ast.walk(arguments) if isinstance(a, ast.arg) and a.annotation]
            yield from ([returns] if returns else [])
            yield from decorators
        case ast.ClassDef(decorator_list=decorators):
            yield from decorators


def _operator(name: str, lines: list[str], left: ast.expr, op: ast.AST, right: ast.expr) -> Iterator[Mutant]:
    other = _OTHER.get(type(op))
    if other is None or left.end_col_offset is None:
        return
    between = lines[left.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
    place = re.search(re.escape(other[0]), between)
    if place is not None:
        first = left.end_col_offset + len(between[: place.start()].encode())
        yield Mutant(name, left.lineno, first, first + len(other[0].encode()), *other)


def killed_by(mutant: Mutant, folder: Path, seed: int) -> str:
    """Return the test that fails with this mutant, "" if none does."""
    tests = covering([mutant.path])
    target, original = folder / mutant.path, (ROOT / mutant.path).read_text(encoding="utf-8")
    target.write_text(mutant.apply(original), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-m", "not spark and not jvm", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "LAKEPROOF_SEED": str(seed)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        target.write_text(original, encoding="utf-8")
    if done.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[| - |$)", done.stdout, re.MULTILINE)
    if failed is not None:
        return failed[1].rpartition("/")[2]
    if ": in <module>" in done.stdout + done.stderr:
        return "the import"
    raise RuntimeError(f"the tests did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=3600.0)
    arguments = parser.parse_args()
    files = [path for room in ROOMS for path in sorted((ROOT / "lakeproof" / room).rglob("*.py"))]
    plain = [path for path in files if "compiled" not in path.read_text(encoding="utf-8")]
    covered = [path for path in plain if covering([str(path.relative_to(ROOT))])]
    every = [mutant for path in covered for mutant in mutants(path)]
    chosen = random.Random(arguments.seed).sample(every, arguments.count)
    print(
        f"{len(every)} mutants of {len(covered)} files with tests of their own; {len(plain) - len(covered)} have none."
    )
    print(f"seed {arguments.seed}\n\n| place | change | noticed by |\n|---|---|---|", flush=True)
    deadline = time.monotonic() + arguments.limit_s
    with tempfile.TemporaryDirectory(prefix="lakeproof-mutants-") as name:
        folder = Path(name)
        for part in _COPIED:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", ".state"))
        for file in ("pyproject.toml", "requirements.lock", "mkdocs.yml", "README.md", "Makefile"):
            shutil.copy(ROOT / file, folder / file)
        for mutant in chosen:
            if time.monotonic() > deadline:
                break
            by = killed_by(mutant, folder, arguments.seed) or "**survived**"
            place = mutant.path.removeprefix("lakeproof/")
            print(f"| `{place}:{mutant.line}` | `{mutant.before[:50]}` → `{mutant.after}` | {by} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
