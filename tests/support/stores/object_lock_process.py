"""A process that holds a lock of an object store until it is killed: `BUCKET ENDPOINT KEY alone|shared`.

It says `held`, or why it does not hold it, on its standard output. What the lock does is not tested here.
"""

from __future__ import annotations

import sys
import time

from lakeproof.errors import TransientError
from tests.support.stores.fix_object_store import object_store


def main() -> None:
    """Take the lock and sleep."""
    bucket, endpoint, key, how = sys.argv[1:]
    store = object_store(bucket, endpoint)
    if how == "shared":
        lock = store.share_lock(key, 0.0)
        _say("refused" if lock is None else "held")
        time.sleep(600)
        return
    try:
        with store.lock(key, "thing", "it is taken"):
            _say("held")
            sys.stdin.readline()
        _say("released")
    except TransientError as error:
        _say(f"refused: {error.reason}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
