"""The configuration file as a resource, and the cheap looks at a source and its lake that sensors and metadata need.

What is decided from those looks belongs to `orchestration`; whatever writes belongs to `wal2delta.pipeline`.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg

from resources.run_lock import hold_run_lock, is_working
from wal2delta.config.load import load
from wal2delta.config.model import Config
from wal2delta.errors import Wal2DeltaError
from wal2delta.lake.documents import Cut
from wal2delta.lake.records import newest_cut, newest_number
from wal2delta.landing.chain import Chain
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.landing.store import open_store
from wal2delta.names import TableName
from wal2delta.pipeline.health import SlotHealth, slot_health
from wal2delta.pipeline.recopy import Recopy, recopy
from wal2delta.pipeline.status import StatusReport, slot_gap, status
from wal2delta.postgres.connection import connect
from wal2delta.postgres.patience import Patience, within
from wal2delta.postgres.server import identify
from wal2delta.postgres.slot import SlotState, read_slot
from wal2delta.proof.record import due, read_proved

_LOG = logging.getLogger("wal2delta.dagster")
# An answer takes milliseconds; a tick of a sensor or schedule must end within 60 s, and others wait for it.
PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class SlotLook:
    """A slot and how long it will last, both None where there is none.

    `begun` says whether there is a landing, `gap` why no drain can go on with the slot there is, or is not.
    """

    begun: bool
    state: SlotState | None
    health: SlotHealth | None
    gap: str | None


class Settings(dg.ConfigurableResource["Settings"]):
    """Where `wal2delta.yaml` is; it is read anew by every run and every tick, so an edit of a value needs no reload.

    Secrets come from the environment of the process that uses them, and never enter run configuration. Every method
    raises what it meets of `wal2delta.errors`.
    """

    config_path: str

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """In a run: take the lock of its job, which tells others that its process lives."""
        if context.run is None:
            return
        try:
            hold_run_lock(self.config().lake, context.run.job_name)
        except (Wal2DeltaError, OSError) as error:
            # The run itself says better what is wrong with its configuration, or with a lake that can't be written to.
            _LOG.warning("run %s may be taken for dead: %s", context.run.run_id, error)

    def config(self) -> Config:
        """The whole configuration."""
        return load(Path(self.config_path))

    def slot_look(self, source: str) -> SlotLook:
        """The source's slot as its server sees it now, and what of it can't be drained.

        A server that does not answer for `PATIENCE_S` seconds is a TransientError: whoever looks has others to look at.
        """
        config = self.config()
        chosen = config.sources[source]
        with within(Patience(PATIENCE_S)), connect(chosen.dsn, "wal2delta dagster") as connection:
            chain = Chain.open_newest(open_store(config.lake), LakePaths(config.lake, source))
            server, state = identify(connection), read_slot(connection, chosen.slot)
        gap = None if chain is None else slot_gap(chosen, state, chain)
        health = None if state is None else slot_health(state, server.current_lsn, chain, chosen.health)
        return SlotLook(chain is not None, state, health, None if gap is None else f"{gap.reason}; {gap.remedy}")

    def in_lake(self, source: str | None = None) -> StatusReport:
        """How a source and the views that read it stand in the lake, or all of them; no server is asked."""
        return status(self.config(), None if source is None else [source], servers=False)

    def newest_cut(self, source: str) -> Cut | None:
        """The source's frontier in the lake."""
        lake = self.config().lake
        return newest_cut(open_store(lake), LakePaths(lake, source))

    def is_working(self, job: str) -> bool | None:
        """Whether a run of `job` has a process; None where that is not known."""
        return is_working(self.config().lake, job)

    def to_copy(self, source: str) -> Recopy:
        """The tables that may be copied without being asked; no server is asked."""
        return recopy(self.config(), source, datetime.now(timezone.utc))

    def due_for_proof(self, source: str) -> list[TableName]:
        """The configured tables that a scheduled proof takes now."""
        config = self.config()
        chosen = config.sources[source]
        proved = read_proved(open_store(config.lake), LakePaths(config.lake, source))
        return due(chosen.tables, proved, chosen.proof_rows)

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
