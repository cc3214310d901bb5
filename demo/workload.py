"""A live workload on the shop until SIGTERM stops it: random, seeded, at a bounded rate.

It is a separate process, so that it does not share the demonstration's interpreter. The transactions do not belong here
(`demo.shop`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import threading
import time

import psycopg

from demo.shop import Connection, transaction
from lakeproof.events import Stop

# Conflicts between two clients: each is an ordinary end of a transaction.
_COLLISIONS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.ForeignKeyViolation,
    psycopg.errors.UniqueViolation,
)


def main() -> int:
    """Return 0 if it was stopped, 1 if a client failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, default=100.0, help="transactions per second, all clients together")
    parser.add_argument("--clients", type=int, default=2)
    arguments = parser.parse_args()
    stop = Stop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.request())
    failures: list[BaseException] = []
    threads = [
        threading.Thread(
            target=_client,
            args=(random.Random(arguments.seed + number), arguments.rate / arguments.clients, stop, failures),
        )
        for number in range(arguments.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        print(f"the workload stopped: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _client(rng: random.Random, rate: float, stop: Stop, failures: list[BaseException]) -> None:
    try:
        # The connection string contains a password, so it comes from the environment, not from the command line.
        with psycopg.connect(os.environ["LAKEPROOF_DEMO_DSN"], autocommit=True) as connection:
            _run(connection, rng, rate, stop)
    except Exception as failure:  # noqa: BLE001  (the main thread reports it)
        failures.append(failure)
        stop.request()


def _run(connection: Connection, rng: random.Random, rate: float, stop: Stop) -> None:
    due = time.monotonic()
    while not stop.requested:
        with contextlib.suppress(*_COLLISIONS):
            transaction(connection, rng)
        # A fixed mean rate; transactions delayed by a slow moment are not made up for in a burst.
        due = max(due + rng.expovariate(rate), time.monotonic() - 1.0)
        stop.wait(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main())
