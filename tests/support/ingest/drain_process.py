"""One drain as a process that a test may kill: does what it is given, prints what came of it as one JSON line.

Not a test, and not the command line, whose own tests are in tests/shell.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from pathlib import Path
from typing import Any

from lakeproof.commands.drain import drain
from lakeproof.config.location import LakeLocation, StorageConfig
from lakeproof.drain.until import Until
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Stop
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.warm_up import warm_up_decoder
from lakeproof.postgres.connections import framing
from tests.support.ingest.fix_drain import SOURCE, make_config

# The compiled loops, loaded once: each process would need a second for them.
warm_up_decoder()
framing.warm_up_framing()


def run(given: dict[str, Any]) -> int:
    """Run one drain; the exit status is that of its error."""
    lake: Path | LakeLocation = Path(given["lake"])
    if "storage" in given:
        lake = LakeLocation(given["lake"], StorageConfig.model_validate(given["storage"]))
    config = make_config(given["dsn"], lake, given["slot"], **given["drain"])
    # For a test whose patience is over: where each thread stands.
    faulthandler.register(signal.SIGUSR1)
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.request())
    try:
        result = drain(config, SOURCE, _until(given["until"]), _tell, stop)
    except LakeproofError as error:
        _print({"error": type(error).__name__, "text": str(error)})
        return error.exit_status
    _print(
        {
            "end_lsn": str(result.end_lsn),
            "confirmed_flush_lsn": str(result.confirmed_flush_lsn),
            "rows": result.rows,
            "reason": result.reason_for_end,
        }
    )
    return 0


def _until(text: str) -> Until:
    kind, _, value = text.partition("=")
    match kind:
        case "caught_up":
            return Until.caught_up()
        case "lsn":
            return Until.lsn(Lsn.parse(value))
        case "seconds":
            return Until.seconds(float(value))
        case _:
            return Until.stopped()


def _tell(event: Event) -> None:
    sys.stderr.write(f"{event.kind} {event.message}\n")


def _print(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
