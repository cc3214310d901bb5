"""What the demonstration prints: one line per step with its time, and the table at the end.

What the steps do belongs to `demo.run` and `demo.steps`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_HEAD = ("table", "rows in PostgreSQL", "rows in the lake", "position", "equal")


class Say:
    """What a step adds to its line when it is done."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, text: str) -> None:
        """Add `text`; the last one counts."""
        self.text = text


@contextmanager
def step(what: str) -> Iterator[Say]:
    """Print `what` before, and the seconds it took after."""
    print(f"  {what} …", flush=True, end="")
    started, say = time.monotonic(), Say()
    yield say
    print(f" {time.monotonic() - started:.1f} s{': ' if say.text else ''}{say.text}", flush=True)


def print_table(rows: Sequence[tuple[str, str, str, str, str]]) -> None:
    """The result, in columns: table, rows in PostgreSQL, rows in the lake, position, equal."""
    cells = [_HEAD, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    print()
    for number, (table, source, lake, position, equal) in enumerate(cells):
        counts = f"{source:>{widths[1]}}  {lake:>{widths[2]}}"
        print(f"  {table:<{widths[0]}}  {counts}  {position:<{widths[3]}}  {equal}".rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    print(flush=True)


def count(rows: int | None) -> str:
    """A number of rows, or a dash where there is none."""
    return "-" if rows is None else f"{rows:,}"
