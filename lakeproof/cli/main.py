"""The command `lakeproof`: parses, runs one command, turns any exception into one line and an exit status.

The commands do not belong here: `arguments` has the table of commands; their work is unknown here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lakeproof.cli.arguments import function_of, parser
from lakeproof.cli.interruption import Interruption
from lakeproof.cli.progress import progress
from lakeproof.cli.results import DONE, REFUSED, TRY_AGAIN, Outcome, printable, to_json
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.errors import ConfigError, InvariantError, LakeproofError
from lakeproof.events import Report, Stop


class _Extra(NamedTuple):
    """An extra of the package, and what a command without it lacks."""

    name: str
    needs: str


# The extra of each package, with those that it brings.
_EXTRAS = {
    **dict.fromkeys(("pyspark", "delta", "py4j"), _Extra("spark", "computes with Spark")),
    "great_expectations": _Extra("expectations", "asks Great Expectations"),
    "dagster_pipes": _Extra("pipes", "reports to a Dagster run"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lakeproof` with `argv` (the process's arguments by default) and return its exit status."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has printed the help, the version or the error
        return leaving.code if isinstance(leaving.code, int) else REFUSED
    try:
        return _run(args)
    except KeyboardInterrupt:
        return _fail("interrupted", TRY_AGAIN)
    except BrokenPipeError:
        # Nobody reads the result. Python would raise the error again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return TRY_AGAIN
    except ConfigFileError as error:
        for line in error.lines():
            _fail(line, error.exit_status)
        return error.exit_status
    except LakeproofError as error:
        _trace(args)
        if args.json:
            _print_json({"error": {"thing": error.thing, "reason": error.reason, "remedy": error.remedy}})
        report_it = " (this is a mistake in lakeproof: please report it)" if isinstance(error, InvariantError) else ""
        return _fail(f"{error}{report_it}", error.exit_status)
    except OSError as error:
        _trace(args)
        return _fail(f"{error.filename or args.command}: {error.strerror or type(error).__name__}; {_remedy(error)}")
    except Exception as error:  # noqa: BLE001  (the last resort: one line instead of a traceback)
        _trace(args)
        return _fail(_unexpected(error))


def _run(args: argparse.Namespace) -> int:
    stop = Stop()
    try:
        with Interruption(stop) as interruption:
            outcome = _outcome(args, stop, interruption)
    except ModuleNotFoundError as error:
        raise _not_installed(args, error) from None
    _print(outcome, as_json=args.json)
    interrupted = stop.requested and outcome.status == DONE and not outcome.ends_by_signal
    return TRY_AGAIN if interrupted else outcome.status


def _outcome(args: argparse.Namespace, stop: Stop, interruption: Interruption) -> Outcome:
    if args.dagster_pipes_messages is None:
        shown = progress(sys.stderr)
        try:
            return _command(args, shown, stop, interruption)
        finally:
            shown.close()
    from lakeproof.cli.pipes import run_report
    from lakeproof.config.load import load
    from lakeproof.storage.open import open_store

    # The run has the events, so stderr has errors alone.
    location = load(args.config).location
    with run_report(args, open_store(location), stop) as report:
        outcome = _command(args, report, stop, interruption)
        report.result(outcome.document, outcome.status)
    return outcome


def _command(args: argparse.Namespace, report: Report, stop: Stop, interruption: Interruption) -> Outcome:
    from lakeproof.cli.context import Context

    context = Context(args.command, args.config, args.json, report, stop, interruption)
    return function_of(args.command)(context, args)


def _not_installed(args: argparse.Namespace, error: ModuleNotFoundError) -> Exception:
    """Return the error about a package of an extra; the same error about any other."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return error
    return ConfigError(
        f"lakeproof {args.command}",
        f"it {extra.needs}, and {error.name} is not installed",
        f"run `pip install 'lakeproof[{extra.name}]'`, or this command on a machine that has it: the lake is the same",
    )


def _print(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        _print_json(to_json(outcome.document))
    elif outcome.text:
        print(_printable_lines(outcome.text), flush=True)


def _print_json(document: object) -> None:
    # Escapes everything that is not ASCII, control characters too.
    print(json.dumps(document, indent=2), flush=True)


def _trace(args: argparse.Namespace) -> None:
    if args.debug:
        print(_printable_lines(traceback.format_exc()), file=sys.stderr, flush=True)


def _printable_lines(text: str) -> str:
    """Return the text without control characters except newlines: tables and messages may contain any character."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _fail(text: str, status: int = REFUSED) -> int:
    print(f"lakeproof: {printable(text)}", file=sys.stderr, flush=True)
    return status


def _remedy(error: OSError) -> str:
    # Imported here, since no command that ends well needs them.
    import tempfile

    from lakeproof.storage.disk import is_full

    if is_full(error):
        # An error while writing does not name the file.
        return f"make room for the lake, and for temporary files in {tempfile.gettempdir()}, then run again: nothing is lost"
    return "correct that and run again"


def _unexpected(error: Exception) -> str:
    # The message may contain a row's value or a secret, so only the type and the location are shown.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "lakeproof" in Path(f.filename).parts]
    location = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{location}; run again with --debug for the traceback, and report it"
