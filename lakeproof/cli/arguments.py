"""The command line: every command with its function, its arguments and its help text.

Functions are in `source_commands`, `lake_commands`, `view_commands` and `machine_commands`, each imported when it is called:
help, and mistakes on the command line, load nothing else of lakeproof.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from lakeproof import __version__
from lakeproof.config.mistakes import nearest
from lakeproof.config.table_names import parse_tables
from lakeproof.lsn import Lsn

if TYPE_CHECKING:
    from lakeproof.cli.context import Context
    from lakeproof.cli.results import Outcome

_T = TypeVar("_T")
CommandFunction: TypeAlias = "Callable[[Context, argparse.Namespace], Outcome]"

# The function of each command, by the module of this room that has it.
COMMANDS: Mapping[str, str] = {
    "init": "machine_commands.init",
    "check": "source_commands.check",
    "plan": "source_commands.plan",
    "apply": "source_commands.apply",
    "pause": "source_commands.pause",
    "resume": "source_commands.resume",
    "bootstrap": "source_commands.bootstrap",
    "drain": "source_commands.drain",
    "recover": "source_commands.recover",
    "teardown": "source_commands.teardown",
    "compact": "lake_commands.compact",
    "maintain": "lake_commands.maintain",
    "refresh": "lake_commands.refresh",
    "replace": "view_commands.replace",
    "prove": "lake_commands.prove",
    "expect": "lake_commands.expect",
    "daily": "lake_commands.daily",
    "status": "lake_commands.status",
    "inspect": "machine_commands.inspect",
    "fetch-jars": "machine_commands.fetch_jars",
    "help": "machine_commands.help_",
}

_EPILOG = """\
a first run, in this order: init, check, apply, bootstrap, drain --once, compact, prove

words:
  landing      the changes as they came: whole transactions as durable files, in no table yet
  history      a table of every change; current: the table as it is now
  cut          every table's version at one position of the log; readers open cuts
  held         of a table: it stands still, for a reason that has a remedy; the others go on
  bag          a table without a key: the lake knows how often each row occurs
  incarnation  one life of the slot; recover begins the next one
  lease        the right to write a lake: one process has it, others wait for their turn
  all of them: lakeproof help glossary

exit status:
  0  done; everything that was compared is equal
  1  done, but something differs or is lacking, or a table is held
  2  refused: the configuration, the source or the lake needs a change first
  3  interrupted, or a passing problem: run the command again

Results go to stdout. Progress and errors go to stderr, progress as JSON lines if stderr is not a terminal.
"""
_STATUS_WORDS = """\
words before a table's name:
  waiting  the next compaction enters it: its copy is complete, or it was made in the stream
  held     it stands still at an earlier position, for the reason given
  paused   it stands still since somebody has paused it
  left     it stands still since it was dropped, or is published and asked for no more
  coming   the next compaction will hold it
  new      a pattern matches it, and it is not published
  lacking  it is published and in no lake; or not compared, differing, without a day, overwritten

Exit status 1 if anything is held or lacking, or an interrupted snapshot has left tables.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the command that was probably meant instead of listing all commands."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        near = None
        if action.choices is not None and value not in action.choices:
            near = nearest(str(value), map(str, action.choices))
        if near is not None:
            raise argparse.ArgumentError(action, f"there is no {str(value)[:40]!r}; did you mean {near}?")
        super()._check_value(action, value)


def function_of(command: str) -> CommandFunction:
    """Return the function of a command, and import it."""
    module, _, name = COMMANDS[command].partition(".")
    return cast(CommandFunction, getattr(import_module(f"lakeproof.cli.{module}"), name))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(
        prog="lakeproof",
        description=(
            "Replicates PostgreSQL tables to Delta Lake over logical replication,\n"
            "and proves that both are equal at one position (LSN)."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"lakeproof {__version__}")
    _common(top, top_level=True)
    # Dagster Pipes: `resources.compute` adds them to a command that runs outside of Dagster.
    for option in ("--dagster-pipes-context", "--dagster-pipes-messages"):
        top.add_argument(option, help=argparse.SUPPRESS)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _source_commands(commands)
    _lake_commands(commands)
    return top


def _source_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    init = _command(commands, "init", "write a first configuration from what a database contains")
    init.add_argument("--dsn", required=True, metavar="DSN", help="how to connect: a libpq connection string or URI")
    init.add_argument("--name", metavar="NAME", help="a name for this source (default: the database's name)")
    check = _command(commands, "check", "check configuration, sources and this machine; changes nothing")
    check.add_argument("source", nargs="?", metavar="SOURCE", help="the source in the configuration (default: all)")
    plan = _command(commands, "plan", "show the SQL that creates or changes the publication")
    apply = _command(commands, "apply", "show the SQL that creates or changes the publication, then run it")
    pause = _command(commands, "pause", "take tables out of the publication for a while; the others go on")
    resume = _command(commands, "resume", "publish paused tables again, and copy them")
    bootstrap = _command(commands, "bootstrap", "copy the published tables, all as of one position (LSN)")
    drain = _command(commands, "drain", "read changes from the slot into the landing until stopped")
    recover = _command(
        commands, "recover", "start a new incarnation after the slot was lost or the server was restored"
    )
    teardown = _command(commands, "teardown", "drop the slot, and the publications that apply made; the lake stays")
    for command in (plan, apply, pause, resume, bootstrap, drain, recover, teardown):
        _source(command)
    _tables(pause, "pause these")
    _tables(resume, "resume these (default: all paused ones)")
    group = bootstrap.add_mutually_exclusive_group()
    _tables(group, "copy only these")
    _flag(
        group,
        "--held",
        "copy the held tables that need a new snapshot, and new ones that need a copy, if their pause is over",
    )
    _flag(bootstrap, "--again", "copy all tables, including those that an interrupted run has finished")
    end = drain.add_mutually_exclusive_group()
    _flag(end, "--once", "end when all changes made so far are in the landing")
    text = "end when the landing has reached this position"
    end.add_argument("--until-lsn", type=_typed(Lsn.parse), metavar="LSN", help=text)
    end.add_argument("--seconds", type=_typed(_duration), metavar="N", help="end after this many seconds")
    _metrics(drain, "if it goes on")
    _flag(recover, "--dry-run", "only show what would be done")
    _flag(recover, "--other-system", "allow the dsn to lead to a different server than the one in the lake")
    _flag(
        recover, "--abandon-slot", "drop a slot that is alive, but stuck: the server can't send its stream any further"
    )
    _flag(recover, "--yes", "do not ask for confirmation of --abandon-slot")
    _flag(teardown, "--dry-run", "only show what would be dropped")
    _flag(teardown, "--yes", "do not ask for confirmation")
    _flag(teardown, "--end-drain", "first end the connection of the process that reads the slot")


def _lake_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    compact = _command(commands, "compact", "bring history and current tables up to the end of the landing")
    of = compact.add_mutually_exclusive_group()
    _source(of)
    of.add_argument("--group", metavar="NAME", help="compact the sources of this group, then make a cut of the group")
    _flag(
        compact, "--follow", "go on: a cycle as soon as enough has landed, then the views that read it; Ctrl-C ends it"
    )
    compact.add_argument("--seconds", type=_typed(_duration), metavar="N", help="end after so many, with --follow")
    _flag(compact, "--no-views", "refresh no view, with --follow")
    _metrics(compact, "with --follow")
    maintain = _command(commands, "maintain", "delete what the retention no longer keeps, and merge small files")
    _source(maintain)
    _flag(maintain, "--plan", "only show what would be deleted and merged")
    _tables(maintain, "first rebuild these current tables from their history", "--rebuild", default=())
    _tables(maintain, "bring the archived history of these tables back", "--restore", default=())
    _flag(maintain, "--nothing-else", "with --rebuild or --restore: delete and merge nothing")
    refresh = _command(commands, "refresh", "bring views up to the newest cuts")
    refresh.add_argument("views", nargs="*", metavar="VIEW", help="views in the configuration (default: all)")
    _flag(refresh, "--again", "compute them whole, even if nothing that they read has changed")
    _replace(commands)
    prove = _command(commands, "prove", "compare the source with the lake at one position (LSN)")
    _source(prove)
    _tables(prove, "compare only these")
    _flag(prove, "--repair", "correct the rows that differ")
    _flag(prove, "--changed", "compare only the keys that changed since each table's last proof")
    _flag(prove, "--history", "prove all histories and views, not only those whose turn it is")
    just = "in place of those whose turn it is; without --tables, nothing is compared with the source"
    prove.add_argument(
        "--histories",
        type=_typed(parse_tables),
        metavar="A,B",
        help=f"prove the histories of these tables, {just}",
    )
    prove.add_argument("--views", type=_view_list, metavar="V,W", help=f"prove these views, {just}")
    _days_and_status(commands)


def _replace(commands: argparse._SubParsersAction[_Parser]) -> None:
    replace = _command(commands, "replace", "show what an edited view would change, then apply it, or take it back")
    replace.add_argument("view", metavar="VIEW", help="the view in the configuration")
    what = replace.add_mutually_exclusive_group()
    _flag(what, "--apply", "commit what the newest preview shows")
    _flag(what, "--take-back", "return to the definition that was applied before")
    replace.add_argument("--preview", metavar="ID", help="with --apply: refuse if the newest preview is another one")
    replace.add_argument(
        "--samples",
        type=int,
        default=5,
        metavar="N",
        help="show so many rows to come and to go, 100 at most (default: 5)",
    )


def _days_and_status(commands: argparse._SubParsersAction[_Parser]) -> None:
    expect = _command(commands, "expect", "check the Great Expectations of the configuration")
    _source(expect)
    _tables(expect, "check only these")
    daily = _command(commands, "daily", "keep tables as they were at the end of each day (UTC)")
    _source(daily)
    daily.add_argument(
        "--days",
        type=_typed(_days),
        metavar="A..B",
        required=True,
        help="a day, 2026-01-31, or the days from one to another, 2026-01-01..2026-01-31",
    )
    _tables(daily, "only these of the tables that `daily` of the configuration selects")
    status = _command(commands, "status", "show slots, landings, cuts, views, and what the lake lacks")
    status.epilog, status.formatter_class = _STATUS_WORDS, argparse.RawDescriptionHelpFormatter
    status.add_argument("source", nargs="?", metavar="SOURCE", help="the source in the configuration (default: all)")
    _flag(status, "--sizes", "also show the size of the lake, and how much maintenance would free now")
    inspect = _command(commands, "inspect", "show the content of a manifest or of a data file in the landing")
    inspect.add_argument("file", metavar="FILE", help="a manifest, a data file or a landing")
    jars = _command(commands, "fetch-jars", "download the jars that Spark needs, and archive its classes for this Java")
    jars.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="where to put them (created if missing); set LAKEPROOF_JARS to it on the other host",
    )
    _flag(jars, "--s3", "also those for a lake on S3")
    help_ = _command(commands, "help", "show a section of the manual, which messages name by its topic")
    help_.add_argument("topic", nargs="*", metavar="TOPIC", help="words of its heading (default: list the pages)")


def _command(commands: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
    _common(command, top_level=False)
    return command


def _common(target: argparse.ArgumentParser, *, top_level: bool) -> None:
    """Add the options that may stand before or after the command: only the top level sets their defaults."""
    absent = argparse.SUPPRESS
    target.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        default=None if top_level else absent,
        help="the configuration (default: $LAKEPROOF_CONFIG, else ./lakeproof.yaml)",
    )
    target.add_argument(
        "--json",
        action="store_true",
        default=False if top_level else absent,
        help="print the result as one JSON document",
    )
    target.add_argument(
        "--debug",
        action="store_true",
        default=False if top_level else absent,
        help="show tracebacks of unexpected errors",
    )


def _source(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "source", nargs="?", metavar="SOURCE", help="the source in the configuration; optional if there is only one"
    )


def _flag(command: argparse._ActionsContainer, name: str, text: str) -> None:
    command.add_argument(name, action="store_true", help=text)


def _tables(
    command: argparse._ActionsContainer, text: str, name: str = "--tables", default: tuple[()] | None = None
) -> None:
    form = f"{text}: schema.table,schema.table"
    command.add_argument(name, type=_typed(parse_tables), metavar="A,B", default=default, help=form)


def _metrics(command: argparse._ActionsContainer, when: str) -> None:
    command.add_argument(
        "--metrics",
        type=_typed(_address),
        metavar="HOST:PORT",
        help=f"serve metrics and health here, {when}; a port alone is one of the loopback",
    )


def _typed(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    # argparse shows an ArgumentTypeError's text, but only the function's name for a ValueError.
    def parse_argument(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


def _address(text: str) -> str | None:
    from lakeproof.config.section.metrics import read_address

    return read_address(text)


def _view_list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _days(text: str) -> tuple[date, ...]:
    first, _, last = text.partition("..")
    days = (date.fromisoformat(first), date.fromisoformat(last or first))
    if days[1] < days[0]:
        raise ValueError("the second day is before the first")
    return tuple(days[0] + timedelta(days=n) for n in range((days[1] - days[0]).days + 1))


def _duration(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise ValueError("must be more than 0")
    return value
