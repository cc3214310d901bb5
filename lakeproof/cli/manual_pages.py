"""Finds sections of the manual by words of their headings, for `lakeproof help`: an installed package has its pages with it.

The sections that messages name are `lakeproof.errors.manual`'s; the pages are written in `docs`, and not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakeproof.errors import topic

_HEADING = re.compile(r"(#{1,6}) (.+)")
_FENCE = "```"
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")


@dataclass(frozen=True, slots=True)
class Section:
    """A section with what is below it: the title of its page, its heading, and its text for a terminal."""

    page: str
    heading: str
    text: str

    @property
    def topic(self) -> str:
        """The word that names it on the command line."""
        return topic(self.heading)


def pages_folder() -> Path:
    """Return the folder of the pages: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "manual"
    return inside if inside.is_dir() else package.parent / "docs"


def sections() -> list[Section]:
    """Return every section of every page, the page itself first."""
    pages = sorted(pages_folder().glob("*.md"))
    return [section for page in pages for section in _sections(page.read_text(encoding="utf-8"))]


def matching(words: Sequence[str]) -> list[Section]:
    """Return the sections whose heading is these words, or else has all of them."""
    every, name = sections(), topic(" ".join(words))
    exact = [section for section in every if section.topic == name]
    parts = name.split("-")
    return exact or [section for section in every if set(parts) <= set(section.topic.split("-"))]


def _sections(text: str) -> Iterator[Section]:
    lines, title, is_code = text.splitlines(), "", False
    headings: list[tuple[int, int, str]] = []
    for number, line in enumerate(lines):
        is_code ^= line.startswith(_FENCE)
        match = None if is_code else _HEADING.fullmatch(line)
        if match is not None:
            headings.append((number, len(match[1]), match[2]))
            title = title or match[2]
    for position, (number, level, heading) in enumerate(headings):
        later = (other for other, depth, _ in headings[position + 1 :] if depth <= level)
        body = "\n".join(lines[number : next(later, len(lines))]).strip()
        yield Section(title, heading, _LINK.sub(r"\1", body))
