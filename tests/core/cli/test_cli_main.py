"""Errors and signals of the command: one line, and an exit status that says what to do."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeproof.cli.context import Context
from lakeproof.cli.main import main
from lakeproof.cli.results import Outcome
from lakeproof.errors import GapError, InvariantError, LakeError, SourceError, TransientError
from lakeproof.events import Event

CONFIG = 'lake: ./lake\nsources:\n  {}:\n    dsn: "host=127.0.0.1 dbname=x"\n'
TWO = CONFIG.format("shop") + '  office:\n    dsn: "host=127.0.0.1 dbname=y"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with one source, whose server is not there."""
    path = tmp_path / "lakeproof.yaml"
    path.write_text(CONFIG.format("shop"))
    return path


def run_as(monkeypatch: pytest.MonkeyPatch, command: Callable[[Context, argparse.Namespace], Outcome]) -> None:
    """Let `status` be `command`."""
    # inside: no command fails in each of these ways when asked to
    monkeypatch.setattr("lakeproof.cli.main.function_of", lambda _name: command)


def raising(error: BaseException) -> Callable[[Context, argparse.Namespace], Outcome]:
    """A command that fails."""

    def command(_context: Context, _args: argparse.Namespace) -> Outcome:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (SourceError("slot shop", "is gone", "make it"), 2, "lakeproof: slot shop: is gone; make it"),
        (GapError("slot shop", "is gone", "make it"), 2, "lakeproof: slot shop: is gone; make it"),
        (LakeError("a\nb", "bad \x1b[2J", "see"), 2, "lakeproof: a?b: bad ?[2J; see"),
        (TransientError("slot shop", "was busy", "try again"), 3, "lakeproof: slot shop: was busy; try again"),
        (
            InvariantError("cut 5", "went back", "stop"),
            2,
            "lakeproof: cut 5: went back; stop (this is a mistake in lakeproof: please report it)",
        ),
        (KeyboardInterrupt(), 3, "lakeproof: interrupted"),
        (
            OSError(28, "No space left on device"),
            2,
            "lakeproof: status: No space left on device; make room for the lake, and for temporary files in /",
        ),
        (
            OSError(13, "Permission denied", "/lake/x"),
            2,
            "lakeproof: /lake/x: Permission denied; correct that and run again",
        ),
        (OSError("odd"), 2, "lakeproof: status: OSError; correct that and run again"),
    ],
)
def test_an_error_is_one_line_and_its_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    line: str,
) -> None:
    """Stdout stays empty, and there is no traceback."""
    run_as(monkeypatch, raising(error))
    assert main(["status"]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_an_unexpected_error_shows_its_type_and_not_its_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message may hold a row's value or a password."""
    run_as(monkeypatch, raising(ValueError("hunter2")))
    assert main(["status"]) == 2
    captured = capsys.readouterr()
    assert "unexpected ValueError" in captured.err
    assert "--debug" in captured.err
    assert "hunter2" not in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("error", [ValueError("x"), SourceError("a", "b", "c"), OSError(5, "d")])
def test_debug_brings_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """The traceback comes before the one line."""
    run_as(monkeypatch, raising(error))
    assert main(["status", "--debug"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("Traceback")
    assert captured.err.splitlines()[-1].startswith("lakeproof: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("ends_by_signal", "status"), [(True, 0), (False, 3)])
def test_a_signal_asks_for_a_clean_end(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, ends_by_signal: bool, status: int
) -> None:
    """An interruption, but for a command that ends in no other way; the process's own handlers come back."""
    before = signal.getsignal(number)

    def command(context: Context, _args: argparse.Namespace) -> Outcome:
        os.kill(os.getpid(), number)
        assert context.stop.wait(5)
        return Outcome(0, None, "", ends_by_signal=ends_by_signal)

    run_as(monkeypatch, command)
    assert main(["status"]) == status
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends at once whatever it is waiting for."""

    def command(context: Context, _args: argparse.Namespace) -> Outcome:
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.stop.wait(5)
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(5)
        return Outcome(0, None, "")

    run_as(monkeypatch, command)
    assert main(["status"]) == 3
    assert "interrupted" in capsys.readouterr().err


def test_a_difference_stays_a_difference_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 1 says more than 3."""

    def command(context: Context, _args: argparse.Namespace) -> Outcome:
        context.stop.request()
        return Outcome(1, None, "")

    run_as(monkeypatch, command)
    assert main(["status"]) == 1


def test_results_and_events_have_their_own_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result has stdout for itself."""

    def command(context: Context, _args: argparse.Namespace) -> Outcome:
        context.show("before")
        context.report(Event("a.b", "working"))
        return Outcome(0, {"a": 1}, "text")

    run_as(monkeypatch, command)
    assert main(["status"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "before\ntext\n"
    assert '"message": "working"' in captured.err
    assert main(["status", "--json"]) == 0
    assert capsys.readouterr().out == '{\n  "a": 1\n}\n'


def test_it_works_outside_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread runs without signal handlers, which Python keeps for the main thread."""
    run_as(monkeypatch, lambda _context, _args: Outcome(0, None, ""))
    actual: list[int] = []
    thread = threading.Thread(target=lambda: actual.append(main(["status"])))
    thread.start()
    thread.join()
    assert actual == [0]


def test_every_mistake_in_the_configuration_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has the mistake's file and line number."""
    path = tmp_path / "w.yaml"
    path.write_text("lake: 5\nsources:\n  shop:\n    dsn: x\n")
    assert main(["-c", str(path), "plan"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"lakeproof: {path}:1: lake: ")
    assert lines[1].startswith(f"lakeproof: {path}:4: sources.shop.dsn: ")


@pytest.mark.parametrize(
    "command", ["check", "plan", "apply", "bootstrap", "drain", "compact", "prove", "status", "teardown"]
)
def test_a_source_that_is_not_there_is_named(file: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """The error suggests the nearest name, before anything is started."""
    assert main(["-c", str(file), command, "shp"]) == 2
    expected = f"lakeproof: source shp: it is not in {file}; did you mean shop?\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("command", ["plan", "apply", "bootstrap", "drain", "compact", "prove", "teardown"])
def test_among_several_sources_one_must_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The command does not guess a source."""
    path = tmp_path / "w.yaml"
    path.write_text(TWO)
    assert main(["-c", str(path), command]) == 2
    expected = (
        f"lakeproof: lakeproof {command}: the configuration has several sources; name one of them: office, shop\n"
    )
    assert capsys.readouterr().err == expected


def test_a_view_that_is_not_there_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The unknown view is refused before Spark is started."""
    assert main(["-c", str(file), "refresh", "revenue"]) == 2
    assert capsys.readouterr().err.startswith(f"lakeproof: view revenue: it is not in {file}; ")


def test_a_missing_configuration_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line has the ways to name a configuration."""
    assert main(["-c", str(tmp_path / "none.yaml"), "status"]) == 2
    assert "there is no such file; name the configuration with -c FILE" in capsys.readouterr().err


def test_inspect_needs_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is a file."""
    assert main(["inspect", str(tmp_path / "none.json")]) == 2
    assert "it does not exist" in capsys.readouterr().err


def test_no_page_passes_a_control_character_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    """A message's prefix or a table's name must not move the terminal's cursor; lines stay lines."""
    hostile = "one\x1b]0;PWNED\a\x1b[2K\r\n two\u2028\x85"
    run_as(monkeypatch, lambda _context, _args: Outcome(0, {}, hostile))
    assert main(["-c", str(file), "status"]) == 0
    assert capsys.readouterr().out == "one?]0;PWNED??[2K?\n two??\n"
    run_as(monkeypatch, raising(LakeError(hostile, "is", "so")))
    assert main(["-c", str(file), "--debug", "status"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_an_error_is_a_document_where_documents_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    """A program reads stdout; the line for people stays on stderr."""
    run_as(monkeypatch, raising(SourceError("slot shop", "is gone", "make it")))
    assert main(["-c", str(file), "--json", "status"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"error": {"thing": "slot shop", "reason": "is gone", "remedy": "make it"}}
    assert printed.err == "lakeproof: slot shop: is gone; make it\n"
