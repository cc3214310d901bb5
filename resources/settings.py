"""The configuration file as a resource, and the cheap looks at a source and its lake that sensors and metadata need.

What is decided from those looks belongs to `orchestration`; whatever writes belongs to `wal2delta.pipeline`.
"""

from pathlib import Path

import dagster as dg

from wal2delta.config.load import load
from wal2delta.config.model import Config
from wal2delta.lake.documents import Cut
from wal2delta.lake.records import newest_cut, newest_number
from wal2delta.landing.chain import Chain
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import open_store
from wal2delta.pipeline.health import SlotHealth, slot_health
from wal2delta.pipeline.status import StatusReport, status
from wal2delta.postgres.connection import connect
from wal2delta.postgres.server import identify
from wal2delta.postgres.slot import SlotState, read_slot


class Settings(dg.ConfigurableResource[Config]):
    """Where `wal2delta.yaml` is; it is read anew by every run and every tick, so an edit of a value needs no reload.

    Secrets come from the environment of the process that uses them, and never enter run configuration. Every method
    raises what it meets of `wal2delta.errors`.
    """

    config_path: str

    def config(self) -> Config:
        """The whole configuration."""
        return load(Path(self.config_path))

    def slot_state(self, source: str) -> SlotState | None:
        """The source's slot as its server sees it now, None where there is none."""
        config = self.config().sources[source]
        with connect(config.dsn, "wal2delta dagster") as connection:
            return read_slot(connection, config.slot)

    def slot_health(self, source: str) -> tuple[SlotState, SlotHealth] | None:
        """The slot and how long it will last, None where there is no slot."""
        config = self.config()
        chosen = config.sources[source]
        with connect(chosen.dsn, "wal2delta dagster") as connection:
            end, state = identify(connection).current_lsn, read_slot(connection, chosen.slot)
        if state is None:
            return None
        chain = Chain.open_newest(open_store(config.lake), LakePaths(config.lake, source))
        return state, slot_health(state, end, chain, chosen.health)

    def status(self, source: str | None = None) -> StatusReport:
        """How a source and the views that read it stand, or all of them."""
        return status(self.config(), None if source is None else [source])

    def newest_cut(self, source: str) -> Cut | None:
        """The source's frontier in the lake."""
        lake = self.config().lake
        return newest_cut(open_store(lake), LakePaths(lake, source))

    def has_waiting_rows(self, source: str) -> bool:
        """Whether changes have landed that are in no cut, or a cycle was interrupted.

        A landing that only moved on, because the server wrote what is not published, has none.
        """
        lake = self.config().lake
        store, paths = open_store(lake), LakePaths(lake, source)
        chain = Chain.open_newest(store, paths)
        if chain is None:
            return False
        cut = newest_cut(store, paths)
        if newest_number(store, paths.intents) > (cut.number if cut else 0):
            return True
        if cut is not None and cut.incarnation != chain.incarnation:
            # What landed before the gap goes first; that a snapshot waits to cross is told by `status`.
            chain = Chain.open(store, paths, cut.incarnation)
        start = chain.head.end_lsn if cut is None else cut.position
        return any(manifest.rows for manifest in chain.between(start, chain.end))
