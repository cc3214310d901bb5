"""The environment in which Spark's driver is started: its log, its scratch folder, its variables, and its output.

The session's settings belong to `session`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# Lines of the JVM itself about modules that Spark asks for; nobody can act on them.
_NOISE = ("WARNING: ", "Using Spark's default log4j profile", "Setting default log level", "To adjust logging level")
_LINES_KEPT = 20
_STDERR = 2
# The setting and the variable that name the folder for shuffles and kept rows.
SCRATCH, SCRATCH_VARIABLE = "spark.local.dir", "SPARK_LOCAL_DIRS"


def log_option() -> str:
    """Return the JVM's option for its log; none if Spark's own configuration folder configures the log."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder and (Path(folder) / "log4j2.properties").exists():
        return ""
    return f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"


def scratch_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the setting for a folder that only this user reads: shuffles and kept rows are written there.

    Nothing if the configuration or the environment names one. The folder goes with this process.
    """
    if SCRATCH in conf or SCRATCH_VARIABLE in os.environ:
        return {}
    return {SCRATCH: _scratch_folder()}


@cache
def _scratch_folder() -> str:
    """Make the folder: one for this process, since a JVM stays with the first that it was given."""
    folder = tempfile.mkdtemp(prefix="lakeproof-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def without(variables: Collection[str]) -> Iterator[None]:
    """Take variables out of the environment for as long as the block runs: what is started in it does not inherit them."""
    taken = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


@contextmanager
def filtered_stderr() -> Iterator[deque[str]]:
    """Let what is started in the block write to a pipe that passes all but noise on to stderr; gives the last lines.

    A started process keeps the pipe for its life; a thread of this process reads it.
    """
    last: deque[str] = deque(maxlen=_LINES_KEPT)
    ours = os.dup(_STDERR)
    read_end, write_end = os.pipe()
    threading.Thread(target=_pass_on, args=(read_end, ours, last), name="lakeproof-stderr", daemon=True).start()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    try:
        yield last
    finally:
        os.dup2(ours, _STDERR)


def _pass_on(read_end: int, ours: int, last: deque[str]) -> None:
    with os.fdopen(read_end, "rb") as lines:
        for line in lines:
            text = line.decode("utf-8", errors="replace")
            if not text.startswith(_NOISE):
                last.append(text.rstrip())
                os.write(ours, line)
    os.close(ours)
