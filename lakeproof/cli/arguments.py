"""What can be written after `lakeproof`: commands, arguments, help.

What the commands do belongs to `commands`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from lakeproof.config.mistakes import nearest
from lakeproof.config.table_names import parse_tables
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

_T = TypeVar("_T")

_EPILOG = """\
exit status: 0 done, and what was compared is equal; 1 done, and something differs or a table is held;
2 the configuration, the source or the lake refuses; 3 interrupted, or to be tried again.
results go to stdout, progress and errors to stderr (progress as JSON lines where stderr is no terminal).
"""


class _Parser(argparse.ArgumentParser):
    """A parser that names the command which was probably meant, rather than all there are."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        near = None
        if action.choices is not None and value not in action.choices:
            near = nearest(str(value), map(str, action.choices))
        if near is not None:
            raise argparse.ArgumentError(action, f"there is no {str(value)[:40]!r}; did you mean {near}?")
        super()._check_value(action, value)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="lakeproof",
        description="PostgreSQL to Delta Lake over logical replication, provably equal to the source at an LSN.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"lakeproof {_version()}")
    _common(top, top_level=True)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _source_commands(commands)
    _lake_commands(commands)
    return top


def _source_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    init = _command(commands, "init", "look at a database and write a first configuration")
    init.add_argument("--dsn", required=True, metavar="DSN", help="a libpq connection string or URI")
    init.add_argument("--name", metavar="NAME", help="the source's name; else the database's")
    check = _command(commands, "check", "look at the configuration and at each source, change nothing")
    check.add_argument("source", nargs="?", metavar="SOURCE", help="all sources where it is left out")
    plan = _command(commands, "plan", "show the SQL that would make or change the publication")
    apply = _command(commands, "apply", "show that SQL, then run it")
    bootstrap = _command(commands, "bootstrap", "copy the published tables at one consistent point")
    drain = _command(commands, "drain", "follow the slot into the landing, until stopped")
    recover = _command(commands, "recover", "begin a new incarnation where slot and landing do not meet any more")
    teardown = _command(commands, "teardown", "drop the slot and the publication; the lake stays")
    for command in (plan, apply, bootstrap, drain, recover, teardown):
        _source(command)
    chosen = bootstrap.add_mutually_exclusive_group()
    _tables(chosen, "copy just these")
    chosen.add_argument(
        "--held",
        action="store_true",
        help="copy the held tables that a snapshot brings back and the new ones of the publication, if it is time to",
    )
    bootstrap.add_argument(
        "--again", action="store_true", help="copy all tables, also those that an interrupted run had finished"
    )
    end = drain.add_mutually_exclusive_group()
    end.add_argument("--once", action="store_true", help="end when all that is there now is durable")
    end.add_argument(
        "--until-lsn", type=_typed(Lsn.parse, "an LSN"), metavar="LSN", help="end when the landing has reached it"
    )
    end.add_argument(
        "--seconds", type=_typed(_duration, "a number of seconds"), metavar="N", help="end after that time"
    )
    recover.add_argument("--dry-run", action="store_true", help="only show what it would do")
    recover.add_argument(
        "--other-system", action="store_true", help="the server behind the dsn may be another one than the lake knows"
    )
    teardown.add_argument("--yes", action="store_true", help="do not ask")
    teardown.add_argument("--end-drain", action="store_true", help="end the connection of whoever reads the slot")


def _lake_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    compact = _command(commands, "compact", "write what has landed to the history and current tables")
    _source(compact)
    maintain = _command(commands, "maintain", "remove what the retention says is not needed, put small files together")
    _source(maintain)
    maintain.add_argument("--plan", action="store_true", help="only show what it would remove and put together")
    for flag, text in (
        ("--rebuild", "make these current tables from their history first"),
        ("--restore", "bring back what the archive has of these tables' history"),
    ):
        maintain.add_argument(
            flag,
            type=_typed(_table_list, "a list of tables"),
            metavar="A,B",
            default=(),
            help=f"{text}: schema.table,…",
        )
    refresh = _command(commands, "refresh", "bring views up to the newest cuts")
    refresh.add_argument("view", nargs="?", metavar="VIEW", help="all views where it is left out")
    prove = _command(commands, "prove", "compare source and lake at one and the same position")
    _source(prove)
    _tables(prove, "compare only these")
    prove.add_argument("--repair", action="store_true", help="put right what differs")
    prove.add_argument("--history", action="store_true", help="prove all histories and views, not only those in turn")
    status = _command(commands, "status", "slots, landings, cuts, held tables and views")
    status.add_argument("source", nargs="?", metavar="SOURCE", help="all sources where it is left out")
    status.add_argument("--sizes", action="store_true", help="also the room that the lake takes, and what would go now")
    inspect = _command(commands, "inspect", "show what is in a manifest or in a landing's data file")
    inspect.add_argument("file", type=Path, metavar="FILE", help="a .json manifest or a .parquet file")
    jars = _command(commands, "fetch-jars", "put the jars that Spark needs into a folder, for a host without a network")
    jars.add_argument("folder", type=Path, metavar="FOLDER", help="made if it is not there; name it in LAKEPROOF_JARS")


def _command(commands: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
    _common(command, top_level=False)
    return command


def _common(target: argparse.ArgumentParser, *, top_level: bool) -> None:
    """The options that may stand before or after the command: only the top level gives their defaults."""
    absent = argparse.SUPPRESS
    target.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        default=None if top_level else absent,
        help="the configuration; else LAKEPROOF_CONFIG, else ./lakeproof.yaml",
    )
    target.add_argument(
        "--json", action="store_true", default=False if top_level else absent, help="the result as one JSON document"
    )
    target.add_argument(
        "--debug", action="store_true", default=False if top_level else absent, help="tracebacks of unexpected errors"
    )


def _source(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", nargs="?", metavar="SOURCE", help="may be left out where there is only one")


def _tables(command: argparse._ActionsContainer, text: str) -> None:
    command.add_argument(
        "--tables",
        type=_typed(_table_list, "a list of tables"),
        metavar="A,B",
        help=f"{text}: schema.table,schema.table",
    )


def _typed(parse: Callable[[str], _T], what: str) -> Callable[[str], _T]:
    # argparse shows an ArgumentTypeError's text, but only the function's name for a ValueError.
    def parse_argument(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error) or f"not {what}") from None

    return parse_argument


def _table_list(text: str) -> tuple[TableName, ...]:
    return parse_tables(text)


def _duration(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise ValueError("must be more than 0")
    return value


def _version() -> str:
    try:
        return version("lakeproof")
    except PackageNotFoundError:
        return "(not installed)"
