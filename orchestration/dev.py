"""`dagster dev` whose web server is the guarded one of `webserver.py`: `python -m orchestration.dev`, with its arguments.

What a developer's machine calls it with belongs to `scripts/ui.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from dagster._cli import dev

_THEIRS, _OURS = "dagster_webserver", "orchestration.webserver"


def main() -> None:
    """Run `dagster dev`; raises RuntimeError if this Dagster starts its web server in another way."""
    # The name is Dagster's own affair, so the module's types don't have it.
    module: Any = dev
    start = module.open_ipc_subprocess
    begun: list[Any] = []

    def start_guarded(parts: list[str], **settings: Any) -> Any:
        # The web server is the first of its processes.
        if not begun and _THEIRS not in parts:
            raise RuntimeError(
                "this version of Dagster starts its web server in another way; it is not started unguarded"
            )
        begun.append(start([_OURS if part == _THEIRS else part for part in parts], **settings))
        return begun[-1]

    module.open_ipc_subprocess = start_guarded
    sys.argv[0] = "dagster"
    dev.dev_command(prog_name="dagster dev")


if __name__ == "__main__":
    main()
