"""Dagster's end of the messages that a command sends from another place: they lie in the lake.

The other end does not belong here (`lakeproof.cli.pipes`), nor what the messages say (`session`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster_pipes import PipesContextData, PipesDefaultContextLoader

from lakeproof.cli.pipes import FOLDER
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store, get_or_none


class LakeMessageReader(dg.PipesBlobStoreMessageReader):
    """Reads the chunks of one session's messages out of the lake, once a second; removes them at its end."""

    def __init__(self, store: Store, folder: str) -> None:
        super().__init__(interval=0)
        self._store = store
        self._folder = folder

    @property
    def expected_writer_count(self) -> int:
        """Return 1. Dagster's own property is a preview, and warns whoever reads it."""
        return 1

    @contextmanager
    def get_params(self) -> Iterator[Mapping[str, Any]]:
        yield {FOLDER: self._folder}

    def messages_are_readable(self, params: Mapping[str, Any]) -> bool:
        del params
        return True

    def download_messages_chunk(self, index: int, params: Mapping[str, Any]) -> str | None:
        del params
        chunk = get_or_none(self._store, LakePaths.message_chunk(self._folder, index))
        return None if chunk is None else chunk.decode()

    def no_messages_debug_text(self) -> str:
        return f"It reads {self._store.url(self._folder)}."


class NoContext(dg.PipesContextInjector):
    """Passes nothing of a run's context but its name: the words of the command say what is to be done.

    What Pipes passes by default grows with the number of tables, and a command line has a limit.
    """

    @contextmanager
    def inject_context(self, context_data: PipesContextData) -> Iterator[Mapping[str, Any]]:
        names: dict[str, Any] = {
            "run_id": context_data["run_id"],
            "job_name": context_data["job_name"],
            "asset_keys": None,
            "extras": {},
        }
        yield {PipesDefaultContextLoader.DIRECT_KEY: names}

    def no_messages_debug_text(self) -> str:
        return "The command has what it needs in its arguments."
