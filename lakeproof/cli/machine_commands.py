"""The commands that need no lake and no source: init, fetch-jars, help, inspect (of one file).

The pages of the manual are written in `docs`, and an installed package has them with it. The sections that messages name
are `lakeproof.errors.manual`'s.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lakeproof.cli.context import Context
from lakeproof.cli.results import DONE, Outcome, format_table, printable
from lakeproof.config.load import configured_path
from lakeproof.config.mistakes import nearest
from lakeproof.errors import ConfigError, topic
from lakeproof.events import Event, counted

# More sections than these are named, and not shown.
_SHOWN_MAX = 3
_HEADING = re.compile(r"(#{1,6}) (.+)")
_FENCE = "```"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class FetchedJars:
    """The folder, all jars in it, and the jars that were downloaded now."""

    folder: Path
    jars: tuple[str, ...]
    fetched: tuple[str, ...]


def init(context: Context, args: argparse.Namespace) -> Outcome:
    """Write a first configuration from what a database contains."""
    from lakeproof.commands import init as step

    written = step.init(configured_path(context.config_file), args.dsn, args.name)
    lines = [f"{written.file}: written, with {counted(len(written.tables), 'table')} of source {written.source}"]
    lines += [f"left out: {table}: {reason}" for table, reason in written.left_out.items()]
    if written.needs_password:
        lines.append(f"the file does not contain the password: set {written.password_variable}")
    return Outcome(DONE, written, "\n".join(map(printable, [*lines, "review the file, then run lakeproof check"])))


def fetch_jars(context: Context, args: argparse.Namespace) -> Outcome:
    """Download the pinned jars into a folder, and make this Java's archive of classes; what is there is kept."""
    from lakeproof.lake.spark import jars as step
    from lakeproof.lake.spark.java import make_archive

    folder = args.folder.absolute()
    sets = [step.DELTA, step.S3] if args.s3 else [step.DELTA]
    missing = step.missing_jars(folder, sets)
    if missing:
        message = f"fetching {', '.join(missing)} from the repositories that Spark's Ivy is configured for"
        context.report(Event("jars.fetch", message, {"jars": missing}))
    files = tuple(file.name for file in step.jars(folder, sets))
    make_archive(folder)
    text = f"{folder}: {counted(len(files), 'jar')} with the pinned checksums, {len(missing)} of them fetched now"
    remedy = f"on the host without a network, copy them to a folder and set {step.VARIABLE} to it"
    return Outcome(DONE, FetchedJars(folder, files, tuple(missing)), "\n".join([printable(text), remedy]))


def help_(_context: Context, args: argparse.Namespace) -> Outcome:
    """Show the sections of the manual that a topic names, or the names of those that it may mean."""
    if not args.topic:
        pages = [section for section in sections() if section.heading == section.page]
        rows = [(section.topic, section.heading) for section in pages]
        return Outcome(DONE, dict(rows), format_table(("topic", "page"), rows))
    chosen = matching(args.topic)
    words = " ".join(args.topic)
    if not chosen:
        near = nearest(topic(words), [section.topic for section in sections()])
        hint = f"did you mean {near}?" if near else "run `lakeproof help` for the pages"
        raise ConfigError(f"topic {words[:80]}", "no section of the manual has these words in its heading", hint)
    if len(chosen) > _SHOWN_MAX:
        rows = [(section.topic, section.page) for section in chosen]
        return Outcome(DONE, dict(rows), format_table(("topic", "on the page"), rows))
    texts = {section.topic: section.text for section in chosen}
    return Outcome(DONE, texts, "\n\n".join(f"({section.page})\n\n{section.text}" for section in chosen))


def inspect(context: Context, args: argparse.Namespace) -> Outcome:
    """Show the content of a manifest or of a data file."""
    from lakeproof.config.location import LakeLocation
    from lakeproof.landing import inspect as step
    from lakeproof.storage.open import folder_to_check

    # Only the configuration says how an object store is reached.
    is_remote = folder_to_check(args.file) is None
    place = LakeLocation(args.file, context.config.storage) if is_remote else Path(args.file)
    if context.as_json:
        return Outcome(DONE, step.inspect(place), "")
    return Outcome(DONE, None, step.inspect_text(place))


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
    every = [section for page in pages for section in _sections(page.read_text(encoding="utf-8"))]
    topics = {_anchor(section.heading): section.topic for section in every}
    return [replace(section, text=_LINK.sub(partial(_as_text, topics), section.text)) for section in every]


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
        yield Section(title, heading, body)


def _anchor(heading: str) -> str:
    """Return the part of a link that names a heading."""
    return "".join(c for c in heading.lower() if c.isalnum() or c in " -_").replace(" ", "-")


def _as_text(topics: Mapping[str, str], link: re.Match[str]) -> str:
    """Return a link's text, with the command that shows the section that it leads to."""
    text, (page, _, anchor) = link[1], link[2].partition("#")
    return f"{text} [lakeproof help {topics[anchor]}]" if anchor in topics and "/" not in page else text
