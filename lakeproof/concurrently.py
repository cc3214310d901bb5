"""Several things at once: looks at sources, each for a limited time, and work on tables and views, a few at a time.

The look and the work do not belong here: callers pass them. A look that does not come back (a server that accepts and then
says nothing, which no timeout of a statement ends) is abandoned; its thread ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from lakeproof.errors import TransientError

K = TypeVar("K")
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


def few_at_a_time(names: Sequence[K], work: Callable[[K], T], threads: int) -> Iterator[tuple[K, T]]:
    """Yield each name with what `work` gives for it, in this order, while up to `threads` of them are at work.

    The first error ends it: no other work begins.
    """
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="lp-table") as pool:
        futures = [(name, pool.submit(work, name)) for name in names]
        try:
            for name, future in futures:
                yield name, future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def after_inputs(needs: Mapping[K, Collection[K]], work: Callable[[K], T], threads: int) -> Iterator[tuple[K, T]]:
    """Yield each name with what `work` gives for it, as it ends, while up to `threads` of them are at work.

    A name begins when those that it needs have ended; of several that could begin, the first in `needs`. So one that is
    slow keeps those back that need it, and no others as long as a thread is free. The first error ends it: no other work
    begins.
    """
    waiting, ended = dict(needs), set[K]()
    at_work: dict[Future[T], K] = {}
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="lp-view") as pool:
        while waiting or at_work:
            ready = [name for name, inputs in waiting.items() if ended.issuperset(inputs)]
            for name in ready[: threads - len(at_work)]:
                del waiting[name]
                at_work[pool.submit(work, name)] = name
            if not at_work:
                raise ValueError("names need each other, or one that is not there")
            for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                name = at_work.pop(future)
                ended.add(name)
                yield name, future.result()
