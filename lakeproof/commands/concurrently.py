"""Looks at several sources at once, each for a limited time: none can hold up another.

The look itself does not belong here: callers pass it. A look that does not come back (a server that accepts and then says
nothing, which no timeout of a statement ends) is abandoned; its thread ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from lakeproof.errors import TransientError

T = TypeVar("T")
# Longer than any timeout of a connection, so that the connection's own error comes first.
TIMEOUT_S = 30.0


def run_concurrently(
    names: Iterable[str], look: Callable[[str], T], timeout_s: float = TIMEOUT_S
) -> dict[str, T | Exception]:
    """Return what `look` gives for each name, or what it raised; TransientError for a look that took too long."""
    all_names = list(names)
    results: dict[str, T | Exception] = {}

    def run(name: str) -> None:
        try:
            result: T | Exception = look(name)
        except Exception as error:  # noqa: BLE001  it is the caller's, who has asked for it
            result = error
        results[name] = result

    threads = {name: threading.Thread(target=run, args=(name,), daemon=True, name=f"look-{name}") for name in all_names}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    reason = f"its server has not answered for {timeout_s:g} s"
    return {n: results.get(n, TransientError(f"source {n}", reason, "see whether the server hangs")) for n in all_names}
