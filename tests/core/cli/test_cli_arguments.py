"""The words that can be written after `lakeproof`, and those that can't."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.cli.arguments import COMMANDS, parser
from lakeproof.cli.main import main
from lakeproof.lsn import Lsn
from lakeproof.names import TableName


def test_every_command_of_the_design_is_there_and_no_other() -> None:
    """The parser and the functions agree."""
    words = {
        "init",
        "check",
        "plan",
        "apply",
        "bootstrap",
        "drain",
        "pause",
        "resume",
        "recover",
        "compact",
        "maintain",
        "refresh",
        "replace",
        "prove",
        "expect",
        "daily",
        "status",
        "inspect",
        "fetch-jars",
        "help",
        "teardown",
    }
    assert set(COMMANDS) == words
    needed = {
        "init": ["--dsn", "dbname=x"],
        "inspect": ["x"],
        "fetch-jars": ["x"],
        "daily": ["--days", "2026-01-01"],
        "replace": ["v"],
    }
    for command in words:
        assert parser().parse_args([command, *needed.get(command, [])]).command == command


@pytest.mark.parametrize("place", ["before", "after"])
def test_common_options_stand_before_or_after_the_command(place: str) -> None:
    """Both places mean the same."""
    options = ["-c", "f.yaml", "--json", "--debug"]
    line = [*options, "status"] if place == "before" else ["status", *options]
    args = parser().parse_args(line)
    assert (args.config, args.json, args.debug) == (Path("f.yaml"), True, True)


def test_without_options_there_are_defaults() -> None:
    """Options that the command's own parser leaves out have defaults, too."""
    args = parser().parse_args(["status"])
    assert (args.config, args.json, args.debug, args.source) == (None, False, False, None)


def test_tables_and_lsns_arrive_as_what_they_are() -> None:
    """Parsed once, at the door."""
    args = parser().parse_args(["bootstrap", "shop", "--tables", 'shop.orders,"my schema"."a.b"'])
    assert args.tables == (TableName("shop", "orders"), TableName("my schema", "a.b"))
    assert parser().parse_args(["drain", "--until-lsn", "1/A"]).until_lsn == Lsn.parse("1/A")


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["drian"], "there is no 'drian'; did you mean drain?"),
        (["chek"], "did you mean check?"),
        (["xyzzy"], "invalid choice: 'xyzzy'"),
        (["status", "a", "b"], "unrecognized arguments: b"),
        (["status", "--jso"], "unrecognized arguments: --jso"),
        (["drain", "--once", "--until-lsn", "0/1"], "not allowed with argument --once"),
        (["drain", "--once", "--seconds", "1"], "not allowed with argument --once"),
        (["drain", "--until-lsn", "16B3748"], "not an LSN"),
        (["drain", "--until-lsn"], "expected one argument"),
        (["drain", "--seconds", "0"], "must be more than 0"),
        (["drain", "--seconds", "nan"], "must be more than 0"),
        (["drain", "--seconds", "inf"], "must be more than 0"),
        (["drain", "--seconds", "soon"], "could not convert"),
        (["bootstrap", "--tables", "orders"], "not a list of tables: 'orders' (the form is schema.table"),
        (["bootstrap", "--tables", "a.b,"], "ends with a comma"),
        (["bootstrap", "--tables", "a.b,a.b"], "appears twice: a.b"),
        (["prove", "--tables", ""], "not a list of tables"),
        (["inspect"], "the following arguments are required: FILE"),
        (["-c"], "expected one argument"),
    ],
)
def test_a_wrong_line_is_exit_status_2_and_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], line: list[str], phrase: str
) -> None:
    """The line is refused before anything is read."""
    assert main(line) == 2
    captured = capsys.readouterr()
    assert phrase in captured.err
    assert not captured.out


@pytest.mark.parametrize("line", [["--help"], ["drain", "--help"], ["--version"]])
def test_help_and_version_are_exit_status_0(capsys: pytest.CaptureFixture[str], line: list[str]) -> None:
    """Help and version are printed to stdout."""
    assert main(line) == 0
    assert "lakeproof" in capsys.readouterr().out


def test_days_are_one_or_from_one_to_another() -> None:
    """Both ends are included; a range that goes backwards is no range."""
    args = parser().parse_args(["daily", "--days", "2026-02-27..2026-03-01"])
    assert [day.isoformat() for day in args.days] == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert len(parser().parse_args(["daily", "--days", "2026-02-27"]).days) == 1
    with pytest.raises(SystemExit):
        parser().parse_args(["daily", "--days", "2026-03-01..2026-02-27"])
