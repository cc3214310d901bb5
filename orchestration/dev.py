"""`dagster dev` with the guarded web server of `webserver.py`: `python -m orchestration.dev`, with the same arguments."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from dagster._cli import dev

_THEIRS, _OURS = "dagster_webserver", f"{__package__}.webserver"


def main() -> None:
    """Run `dagster dev`; raises RuntimeError if this Dagster starts its web server in another way."""
    # This name is private to Dagster, so the module's types don't have it.
    module: Any = dev
    start = module.open_ipc_subprocess
    started: list[Any] = []

    def start_guarded(command: list[str], **settings: Any) -> Any:
        # The web server is the first of its processes.
        if not started and _THEIRS not in command:
            raise RuntimeError(
                "this version of Dagster starts its web server in another way; it is not started without the guard"
            )
        started.append(start([_OURS if word == _THEIRS else word for word in command], **settings))
        return started[-1]

    module.open_ipc_subprocess = start_guarded
    sys.argv[0] = "dagster"
    # A shell ignores SIGINT in what it starts in the background, and Dagster treats SIGTERM as it finds SIGINT treated.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        dev.dev_command(prog_name="dagster dev")
    finally:
        _end_the_rest()


def _end_the_rest() -> None:
    """End what is left in this process's session, if it has one of its own: a code server outlives it, and so do runs."""
    if os.getsid(0) == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    main()
