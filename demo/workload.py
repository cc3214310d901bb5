"""A live workload on the shop until it is told to stop: random, seeded, at a bounded rate.

What a transaction does belongs to `demo.shop`. A process of its own, so that it does not share the demonstration's
interpreter; it is stopped by SIGTERM.
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

# What two clients may do to each other: each is an ordinary end of a transaction.
_COLLISIONS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.ForeignKeyViolation,
    psycopg.errors.UniqueViolation,
)


def main() -> int:
    """0 when told to stop; 1 when a client could not go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, default=100.0, help="transactions per second, all clients together")
    parser.add_argument("--clients", type=int, default=2)
    arguments = parser.parse_args()
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
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


def _client(chance: random.Random, rate: float, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        # The connection string holds a password: it comes by the environment, not by the command line.
        with psycopg.connect(os.environ["LAKEPROOF_DEMO_DSN"], autocommit=True) as connection:
            _run(connection, chance, rate, stop)
    except Exception as failure:  # noqa: BLE001  (told by the main thread)
        failures.append(failure)
        stop.set()


def _run(connection: Connection, chance: random.Random, rate: float, stop: threading.Event) -> None:
    due = time.monotonic()
    while not stop.is_set():
        with contextlib.suppress(*_COLLISIONS):
            transaction(connection, chance)
        # At a fixed mean rate; what a slow moment held up is not caught up in a burst.
        due = max(due + chance.expovariate(rate), time.monotonic() - 1.0)
        stop.wait(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main())
