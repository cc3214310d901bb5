"""Reports a command's events and its result to a Dagster run, through Dagster Pipes: for work outside of Dagster.

`resources.compute` has the other end of the channel.

The messages lie in the lake, as numbered chunks in a folder of the run's own: every place where a command can work reaches
the lake, whatever disk or network it shares with Dagster. A document `stop` in that folder asks for the end.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from dagster_pipes import (
    DAGSTER_PIPES_CONTEXT_ENV_VAR,
    DAGSTER_PIPES_MESSAGES_ENV_VAR,
    PipesBlobStoreMessageWriter,
    PipesBlobStoreMessageWriterChannel,
    PipesContext,
    PipesMappingParamsLoader,
    open_dagster_pipes,
)

from lakeproof.cli.results import TRY_AGAIN, to_json
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Stop
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store

# The parameter of the message writer: the folder of the run's messages in the lake.
FOLDER = "lakeproof_folder"
# The words of the messages; each is a custom message of Pipes with exactly one of them.
EVENT, RESULT, ERROR = "event", "result", "error"
_PROGRESS_S = 1.0
_STOP_POLL_S = 1.0


class LakeMessageWriter(PipesBlobStoreMessageWriter["_LakeChannel"]):
    """Writes the messages of Pipes into a folder of the lake."""

    def __init__(self, store: Store) -> None:
        super().__init__(interval=0)
        self._store = store

    def make_channel(self, params: Mapping[str, Any]) -> _LakeChannel:
        return _LakeChannel(self._store, params[FOLDER])


class _LakeChannel(PipesBlobStoreMessageWriterChannel):
    def __init__(self, store: Store, folder: str) -> None:
        super().__init__(interval=0)
        self._store = store
        self._folder = folder

    def upload_messages_chunk(self, payload: TextIO, index: int) -> None:
        self._store.put(LakePaths.message_chunk(self._folder, index), payload.read().encode())


class RunReport:
    """A `Report` that sends events to the run, and the result or the error after them."""

    def __init__(self, pipes: PipesContext) -> None:
        self._pipes = pipes
        self._lock = threading.Lock()
        self._sent: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Send one event; progress of a kind at most once a second. It may be called from any thread."""
        with self._lock:
            now = time.monotonic()
            if event.kind.endswith(".progress") and now - self._sent.get(event.kind, float("-inf")) < _PROGRESS_S:
                return
            self._sent[event.kind] = now
        sent = {"kind": event.kind, "message": event.message, "fields": to_json(event.fields)}
        self._pipes.report_custom_message({EVENT: sent})

    def result(self, document: object, status: int) -> None:
        """Send the command's result as `--json` prints it."""
        self._pipes.report_custom_message({RESULT: {"document": to_json(document), "status": status}})

    def failed(self, error: BaseException) -> None:
        """Send why there is no result; of an unexpected error only its type, since its text may have a row's value."""
        if isinstance(error, LakeproofError):
            sent = {"thing": error.thing, "reason": error.reason, "remedy": error.remedy, "status": error.exit_status}
        elif isinstance(error, KeyboardInterrupt):
            sent = _error("the command was interrupted", "run it again", TRY_AGAIN)
        else:
            sent = _error(f"unexpected {type(error).__name__}", "see the output of the command, and report it")
        self._pipes.report_custom_message({ERROR: sent})


def _error(reason: str, remedy: str, status: int = 2) -> dict[str, object]:
    return {"thing": "lakeproof", "reason": reason, "remedy": remedy, "status": status}


@contextmanager
def run_report(args: argparse.Namespace, store: Store, stop: Stop) -> Iterator[RunReport]:
    """Give the block the report to the run that `args` name; at its end every message has been written.

    An error of the block is sent, then raised. Meanwhile `stop` is requested if the run asks for it.
    """
    loader = PipesMappingParamsLoader(
        {
            DAGSTER_PIPES_CONTEXT_ENV_VAR: args.dagster_pipes_context,
            DAGSTER_PIPES_MESSAGES_ENV_VAR: args.dagster_pipes_messages,
        }
    )
    folder, ended = loader.load_messages_params()[FOLDER], threading.Event()
    watch = threading.Thread(target=_watch, args=(store, folder, stop, ended), name="lakeproof-stop", daemon=True)
    failure: BaseException | None = None
    with open_dagster_pipes(params_loader=loader, message_writer=LakeMessageWriter(store)) as pipes:
        report = RunReport(pipes)
        watch.start()
        try:
            yield report
        except BaseException as error:  # noqa: BLE001  (it is raised again: Pipes would send its traceback with its text)
            failure = error
            report.failed(error)
        finally:
            ended.set()
    if failure is not None:
        raise failure


def _watch(store: Store, folder: str, stop: Stop, ended: threading.Event) -> None:
    key = LakePaths.message_stop(folder)
    while not ended.wait(_STOP_POLL_S):
        # A store that is away for a moment must not end the work, and the next look finds the document.
        with contextlib.suppress(LakeproofError, OSError):
            if store.exists(key):
                stop.request()
                return
