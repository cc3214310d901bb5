"""What a proxy saw of a work's requests to S3, by method, and the most that the work may take.

Sending them does not belong here (`object_proxy.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.stores.object_proxy import Proxied, Request


def method_of(request: Request) -> str:
    """The method by which S3 bills: a listing is not a GET, and a PUT or POST of an upload is a PUT."""
    if "list-type" in request.query:
        return "LIST"
    return "PUT" if request.method == "POST" else request.method


@contextmanager
def within(proxied: Proxied, work: str, **budget: int) -> Iterator[None]:
    """Assert that the block sends at most so many requests of each method, and none of a method that is not named.

    Locks are left out: they are renewed each 10 s, so their number follows the machine's speed.
    """
    before = len(proxied.seen)
    yield
    sent = [request for request in proxied.seen[before:] if not request.path.endswith(".lock")]
    counts = Counter(map(method_of, sent))
    over = {method: number for method, number in counts.items() if number > budget.get(method, 0)}
    keys = [f"{method_of(request)} {request.path}" for request in sent if method_of(request) in over]
    assert not over, f"{work}: {over} of {dict(counts)}, where the budget is {budget}: {keys}"
