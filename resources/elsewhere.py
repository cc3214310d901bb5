"""One command at another place, from its start to its result or error, in a session of Dagster Pipes.

The other end of the messages does not belong here (`lakeproof.cli.pipes`). The command is a script of the user's, `ssh`,
`spark-submit` or `kubectl`; what it says of its work comes by messages, which lie in the lake, and not by its output.

A run that is ended asks the command to stop at its next safe point, by a document in the lake: a signal ends `ssh` or
`spark-submit`, and not what they have started. A signal follows if the command does not end.
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster_pipes import PipesContextData, PipesDefaultContextLoader, PipesParams

from lakeproof.cli.pipes import ERROR, EVENT, FOLDER, RESULT
from lakeproof.config.model import Config
from lakeproof.config.section.spark import ARGUMENTS, ComputeConfig
from lakeproof.errors import ConfigError, DefiniteError, TransientError
from lakeproof.events import Event, RunControl
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store, get_or_none

_POLL_S = 0.5
# The kernel's limit for one argument is 128 KiB, and a shell's line is one.
_ARGUMENTS_MAX = 100_000
_PLACE = "the command of `compute`"


@dataclass(slots=True)
class _Messages:
    """The messages that have arrived: events go on at once, the result or the error is kept."""

    control: RunControl
    seen: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)

    def take(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Take those that are new."""
        for message in messages[self.seen :]:
            if EVENT in message:
                event = message[EVENT]
                self.control.report(Event(event["kind"], event["message"], event["fields"]))
            else:
                self.last = message
        self.seen = len(messages)


def run_elsewhere(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    config: Config,
    compute: ComputeConfig,
    words: Sequence[str],
    control: RunControl,
) -> Any:
    """Run the command with these words, and return its result as JSON has it.

    Its events are reported as they come. Raises the command's own error, and DefiniteError if it ends without a result.
    """
    store = open_store(config.location)
    folder = LakePaths.messages(f"{context.run.run_id}-{secrets.token_hex(4)}")
    messages = _Messages(control)
    try:
        with dg.open_pipes_session(
            context.op_execution_context, NoContext(), LakeMessageReader(store, folder)
        ) as session:
            arguments = [word for pair in session.get_bootstrap_cli_arguments().items() for word in pair]
            command = [*arguments, "--config", compute.config or str(config.path), *words]
            if (length := sum(len(word) + 1 for word in command)) > _ARGUMENTS_MAX:
                reason = (
                    f"its command line would have {length:,} characters, and a machine takes {_ARGUMENTS_MAX:,} at most"
                )
                raise ConfigError(_PLACE, reason, "select fewer tables in one run")
            process = ChildProcess(compute.command, command)
            ending = None
            try:
                asked_at = None
                while (ending := process.ended(_POLL_S)) is None:
                    messages.take(session.get_custom_messages())
                    if not control.stop.requested:
                        continue
                    if asked_at is None:
                        store.put(LakePaths.message_stop(folder), b"")
                        asked_at = time.monotonic()
                    elif time.monotonic() - asked_at >= compute.stop_s:
                        process.terminate()
                        # Once: a second signal would break off what ends cleanly.
                        asked_at = float("inf")
            finally:
                if ending is None:
                    process.terminate()
        # The session has waited for the last of them.
        messages.take(session.get_custom_messages())
    finally:
        store.delete_all(folder)
    return _result(messages.last, ending)


def _result(message: Mapping[str, Any], ending: Ending) -> Any:
    if RESULT in message:
        return message[RESULT]["document"]
    if ERROR in message:
        sent = message[ERROR]
        kind = TransientError if sent["status"] == TransientError.exit_status else DefiniteError
        raise kind(sent["thing"], sent["reason"], sent["remedy"])
    shown = f"; its last output: {' | '.join(ending.output)}" if ending.output else ""
    raise DefiniteError(
        _PLACE,
        f"it {ending.how} without a result{shown}",
        "run it by hand with `check` in place of the words after it: it needs lakeproof with the extras spark and pipes, and"
        " a configuration with the same lake",
    )


class LakeMessageReader(dg.PipesBlobStoreMessageReader):
    """Reads the chunks of one session's messages out of the lake, once a second; removes them at its end."""

    def __init__(self, store: Store, folder: str) -> None:
        super().__init__(interval=0)
        self._store = store
        self._folder = folder

    @property
    def expected_writer_count(self) -> int:
        """Return 1. Dagster's own property is a preview, and warns whoever reads it."""
        return 1

    @contextmanager
    def get_params(self) -> Iterator[PipesParams]:
        yield {FOLDER: self._folder}

    def messages_are_readable(self, params: PipesParams) -> bool:
        del params
        return True

    def download_messages_chunk(self, index: int, params: PipesParams) -> str | None:
        del params
        chunk = get_or_none(self._store, LakePaths.message_chunk(self._folder, index))
        return None if chunk is None else chunk.decode()

    def no_messages_debug_text(self) -> str:
        return f"It reads {self._store.url(self._folder)}."


class NoContext(dg.PipesContextInjector):
    """Passes nothing of a run's context but its name: the words of the command say what is to be done.

    What Pipes passes by default grows with the number of tables, and a command line has a limit.
    """

    @contextmanager
    def inject_context(self, context_data: PipesContextData) -> Iterator[PipesParams]:
        names: PipesParams = {
            "run_id": context_data["run_id"],
            "job_name": context_data["job_name"],
            "asset_keys": None,
            "extras": {},
        }
        yield {PipesDefaultContextLoader.DIRECT_KEY: names}

    def no_messages_debug_text(self) -> str:
        return "The command has what it needs in its arguments."


# How much of a command's output an error shows: the last lines, each cut off here.
_LINES_SHOWN = 5
_LINE_MAX = 300


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a command: how, in words for people, and the last lines of its output."""

    how: str
    output: tuple[str, ...] = ()


def command_line(command: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the whole command: with the words at its end, or quoted for a shell where it has `{arguments}`."""
    if not any(ARGUMENTS in word for word in command):
        return [*command, *words]
    return [word.replace(ARGUMENTS, shlex.join(words)) for word in command]


class ChildProcess:
    """A command that was started with the words of what is to be done."""

    def __init__(self, command: Sequence[str], words: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command_line(command, words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # Ctrl-C at Dagster's terminal reaches Dagster, which then asks the command to end.
                start_new_session=True,
            )
        except OSError as error:
            reason = f"{command[0]} can't be started ({error.strerror})"
            raise ConfigError("compute.command", reason, "name a command that this machine has") from None
        self._output: deque[str] = deque(maxlen=_LINES_SHOWN)
        self._reader = threading.Thread(target=self._read, name="lakeproof-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Until its end, or the child waits for room in the pipe. Dagster keeps this process's stderr with the run.
        assert self._process.stdout is not None  # noqa: S101  (it was asked for)
        with self._process.stdout as output:
            for line in output:
                sys.stderr.write(line)
                if line.strip():
                    self._output.append(line.rstrip()[:_LINE_MAX])

    def ended(self, wait_s: float) -> Ending | None:
        """Wait so long for the end; None if the command still runs."""
        try:
            status = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None
        # A grandchild may keep the pipe open after the command has ended.
        self._reader.join(timeout=5)
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return Ending(how, tuple(self._output))

    def terminate(self) -> None:
        """End the command soon; once is enough, and more is no error."""
        self._process.terminate()
