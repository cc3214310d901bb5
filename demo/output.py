"""The demonstration's printed output: one line per step with its time, and the table at the end.

The steps do not belong here (`demo.run`, `demo.steps`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_HEAD = ("table", "rows in PostgreSQL", "rows in the lake", "position", "equal")


class StepNote:
    """A text that a step adds to its line when it is done."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, text: str) -> None:
        """Set the text; the last call counts."""
        self.text = text


@contextmanager
def step(title: str) -> Iterator[StepNote]:
    """Print the title before the step, and the seconds it took after it."""
    print(f"  {title} …", flush=True, end="")
    started, note = time.monotonic(), StepNote()
    yield note
    print(f" {time.monotonic() - started:.1f} s{': ' if note.text else ''}{note.text}", flush=True)


def print_table(rows: Sequence[tuple[str, str, str, str, str]]) -> None:
    """Print the result in columns: table, rows in PostgreSQL, rows in the lake, position, equal."""
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
    """Return a number of rows as text, a dash for None."""
    return "-" if rows is None else f"{rows:,}"
