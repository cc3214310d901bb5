"""The command of `compute` as a child process: a script of the user's, `ssh`, `spark-submit` or `kubectl`.

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

from lakeproof.config.section.compute import ARGUMENTS
from lakeproof.errors import ConfigError

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
