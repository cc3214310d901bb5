"""The commands that come before there is a configuration: init, fetch-jars.

Commands on a source belong to `source_commands`, those on a lake to `lake_commands`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from lakeproof.cli.context import Context
from lakeproof.cli.results import DONE, Outcome, plain
from lakeproof.config.load import meant
from lakeproof.events import Event


@dataclass(frozen=True, slots=True)
class FetchedJars:
    """The folder, all jars in it, and which of them were not there before."""

    folder: Path
    jars: tuple[str, ...]
    fetched: tuple[str, ...]


def init(context: Context, args: argparse.Namespace) -> Outcome:
    """Write a first configuration from what a database has."""
    from lakeproof.commands import init as step

    begun = step.init(meant(context.config_file), args.dsn, args.name)
    lines = [f"{begun.file}: written, with {len(begun.tables)} tables of source {begun.source}"]
    lines += [f"left out: {table}: {reason}" for table, reason in begun.left_out.items()]
    if begun.needs_password:
        lines.append(f"the password is not in it: set {begun.password_variable}")
    return Outcome(DONE, begun, "\n".join(map(plain, [*lines, "look through it, then run lakeproof check"])))


def fetch_jars(context: Context, args: argparse.Namespace) -> Outcome:
    """Put the pinned jars into a folder; those that are there stay."""
    from lakeproof.lake.spark import jars as step

    folder = args.folder.absolute()
    wanted = step.missing(folder)
    if wanted:
        told = f"fetching {', '.join(wanted)} from the repositories that Spark's Ivy is configured for"
        context.report(Event("jars.fetch", told, {"jars": wanted}))
    files = tuple(file.name for file in step.jars(folder))
    text = f"{folder}: {len(files)} jars with the pinned checksums, {len(wanted)} of them fetched now"
    remedy = f"on the host without a network: {step.VARIABLE}=FOLDER, the folder that you copy them to"
    return Outcome(DONE, FetchedJars(folder, files, tuple(wanted)), "\n".join([plain(text), remedy]))
