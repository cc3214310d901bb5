"""Bootstraps in processes of their own that a test may kill, forked from one that has everything imported: cheap to start.

Not a test; what is left behind is judged in `tests/scenarios/test_snapshot_killed.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from multiprocessing.process import BaseProcess

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Stop
from lakeproof.failpoints import Armed, watched
from lakeproof.names import Oid
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.connections import framing
from lakeproof.postgres.copying.blocks import typed_batch
from lakeproof.schema import Column
from tests.support.ingest.forked import CONTEXT

# The compiled loops of the tests' columns, loaded once: each process would need seconds for them.
_COLUMNS = [
    Column(kind, oid, -1, kind, kind, attnum, False)
    for attnum, (kind, oid) in enumerate([("int4", Oid(23)), ("text", Oid(25))])
]
_HEADER = b"w" + bytes(24)
typed_batch(MessageBuffer.of([_HEADER + b"1\ta\n", _HEADER + b"\\N\t\\N\n"]), _COLUMNS)
framing.warm_up_framing()


def start_bootstrap(config: Config, failpoint: str = "") -> BaseProcess:
    """`bootstrap` of the source `shop`; its exit status is that of the command."""
    # The server of forks has the environment of the first test that asked for one.
    process = CONTEXT.Process(target=_work, args=(config, failpoint, dict(os.environ)))
    process.start()
    return process


def _work(config: Config, failpoint: str, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.request())
    try:
        with watched(Armed.parse(failpoint)) if failpoint else nullcontext():
            bootstrap(config, "shop", None, _tell, stop)
    except LakeproofError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(error.exit_status)


def _tell(event: Event) -> None:
    sys.stderr.write(f"{event.kind} {event.message}\n")
    sys.stderr.flush()
