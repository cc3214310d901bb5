"""Launchers start a command at the place that `compute` of the configuration names, watch it and end it.

What the command says of its work does not belong here: that comes by messages (`session`), not by its output.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakeproof.config.compute import ARGUMENTS
from lakeproof.errors import ConfigError

# How much of a command's output an error shows: the last lines, each cut off here.
_LINES_SHOWN = 5
_LINE_MAX = 300


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a command: `how`, in words for people, `why` in the platform's, and the last lines of its output.

    `remedy` is empty if the command itself has failed: its output says more than its place does.
    """

    how: str
    output: tuple[str, ...] = ()
    why: str = ""
    remedy: str = ""


class Job(Protocol):
    """A command that was started."""

    @property
    def place(self) -> str:
        """Return what people look it up by on its platform; nothing for a process of this machine."""

    @property
    def page(self) -> str:
        """Return the URL of its page there; nothing if there is none that is known."""

    def ended(self, wait_s: float) -> Ending | None:
        """Wait so long for the end; None if the command still runs."""

    def terminate(self) -> None:
        """End the command soon; once is enough, and more is no error."""


class Launcher(Protocol):
    """A place where commands run."""

    def start(self, words: Sequence[str]) -> Job:
        """Start `lakeproof` with these words; raises ConfigError if the place is not as the configuration says."""


@dataclass(frozen=True, slots=True)
class CommandLauncher:
    """Starts a command of the user's as a child process: a script, `ssh`, `spark-submit` or `kubectl run`."""

    command: Sequence[str]

    def start(self, words: Sequence[str]) -> Job:
        command = command_line(self.command, words)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # Ctrl-C at Dagster's terminal reaches Dagster, which then asks the command to end.
                start_new_session=True,
            )
        except OSError as error:
            reason = f"{self.command[0]} can't be started ({error.strerror})"
            raise ConfigError("compute.command", reason, "name a command that this machine has") from None
        return _ChildProcess(process)


def command_line(command: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the whole command: with the words at its end, or quoted for a shell where it has `{arguments}`."""
    if not any(ARGUMENTS in word for word in command):
        return [*command, *words]
    return [word.replace(ARGUMENTS, shlex.join(words)) for word in command]


class _ChildProcess:
    place = page = ""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
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
        try:
            status = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None
        # A grandchild may keep the pipe open after the command has ended.
        self._reader.join(timeout=5)
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return Ending(how, tuple(self._output))

    def terminate(self) -> None:
        self._process.terminate()
