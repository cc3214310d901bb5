"""One command at another place, from its start to its result or error, in a session of Dagster Pipes.

Its process does not belong here (`command`), nor where the messages lie (`messages`).

A run that is ended asks the command to stop at its next safe point, by a document in the lake: a signal ends `ssh` or
`spark-submit`, and not what they have started. A signal follows if the command does not end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from lakeproof.cli.pipes import ERROR, EVENT, RESULT
from lakeproof.config.model import Config
from lakeproof.config.section.compute import ComputeConfig
from lakeproof.errors import ConfigError, DefiniteError, LakeproofError, TransientError
from lakeproof.events import Event, RunControl
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from resources.compute.command import ChildProcess, Ending
from resources.compute.messages import LakeMessageReader, NoContext

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
            _check_length(command)
            process = ChildProcess(compute.command, command)
            ending = None
            try:
                stopping = _Stopping(store, folder, process, compute.stop_s)
                while (ending := process.ended(_POLL_S)) is None:
                    messages.take(session.get_custom_messages())
                    if control.stop.requested:
                        stopping.ask()
            finally:
                if ending is None:
                    process.terminate()
        # The session has waited for the last of them.
        messages.take(session.get_custom_messages())
    finally:
        store.delete_all(folder)
    return _result(messages.last, ending)


@dataclass(slots=True)
class _Stopping:
    """The end of a command on request: a document first, a signal when that has not helped."""

    store: Store
    folder: str
    process: ChildProcess
    grace_s: float
    asked_at: float | None = None
    terminated: bool = False

    def ask(self) -> None:
        now = time.monotonic()
        if self.asked_at is None:
            self.store.put(LakePaths.message_stop(self.folder), b"")
            self.asked_at = now
        elif not self.terminated and now - self.asked_at >= self.grace_s:
            self.process.terminate()
            self.terminated = True


def _check_length(command: Sequence[str]) -> None:
    length = sum(len(word) + 1 for word in command)
    if length > _ARGUMENTS_MAX:
        reason = f"its command line would have {length:,} characters, and a machine takes {_ARGUMENTS_MAX:,} at most"
        raise ConfigError(_PLACE, reason, "select fewer tables in one run")


def _result(message: Mapping[str, Any], ending: Ending) -> Any:
    if RESULT in message:
        return message[RESULT]["document"]
    if ERROR in message:
        raise _error(message[ERROR])
    shown = f"; its last output: {' | '.join(ending.output)}" if ending.output else ""
    raise DefiniteError(
        _PLACE,
        f"it {ending.how} without a result{shown}",
        "run it by hand with `check` in place of the words after it: it needs lakeproof with the extras spark and pipes, and"
        " a configuration with the same lake",
    )


def _error(sent: Mapping[str, Any]) -> LakeproofError:
    kind = TransientError if sent["status"] == TransientError.exit_status else DefiniteError
    return kind(sent["thing"], sent["reason"], sent["remedy"])
