"""The configuration file as a resource, and the few cheap looks at a source and its lake that sensors need.

What is decided from those looks belongs to `orchestration`; whatever writes belongs to `wal2delta.pipeline`.
"""

from pathlib import Path

import dagster as dg

from wal2delta.config.load import load
from wal2delta.config.model import Config
from wal2delta.postgres.connection import connect
from wal2delta.postgres.slot import SlotState, read_slot

_APPLICATION = "wal2delta dagster"


class Settings(dg.ConfigurableResource[Config]):
    """Where `wal2delta.yaml` is; it is read anew by every run and every sensor tick, so an edit needs no reload.

    Secrets come from the environment of the process that uses them, and never enter run configuration.
    """

    config_path: str

    def config(self) -> Config:
        """The whole configuration; raises ConfigError with every mistake in it."""
        return load(Path(self.config_path))

    def slot_state(self, source: str) -> SlotState | None:
        """The source's slot as its server sees it now, None where there is none; raises SourceError or TransientError."""
        config = self.config().sources[source]
        with connect(config.dsn, _APPLICATION) as connection:
            return read_slot(connection, config.slot)
