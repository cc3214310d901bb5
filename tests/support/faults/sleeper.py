"""A command on S3, in processes of its own, that a test stops amid its work and continues when others have worked.

What the others do meanwhile, and what must hold afterwards, belongs to the tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeproof.config.location import LakeLocation
from lakeproof.failpoints import VARIABLE
from tests.support.stores.fix_object_store import storage

_ROOT = Path(__file__).resolve().parents[3]
# A JVM has to start, on a machine that may be busy.
_TIMEOUT_S = 600.0


@contextmanager
def sleeper(
    program: str, place: LakeLocation, endpoint: str, *arguments: str, failpoint: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """The program, a module of the tests, with the lake behind `endpoint`; what is left of it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", program, place.url, storage(endpoint).model_dump_json(), *arguments],
        cwd=_ROOT,
        env={**os.environ, VARIABLE: failpoint},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until_there(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """Wait until it is where it is to sleep."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not reached():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < deadline, "it did not come there"
        time.sleep(0.05)


def stop(process: subprocess.Popen[str]) -> None:
    """Stop the program and its JVM."""
    os.killpg(process.pid, signal.SIGSTOP)


def continued(process: subprocess.Popen[str]) -> str:
    """Let them go on, wait for the end, and return what was printed."""
    os.killpg(process.pid, signal.SIGCONT)
    output, _ = process.communicate(timeout=_TIMEOUT_S)
    return output
