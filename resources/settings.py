"""The configuration file as a resource, and the cheap looks at a source and its lake that sensors and metadata need.

What is decided from those looks belongs to `orchestration`; whatever writes belongs to `lakeproof.pipeline`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg

from lakeproof.commands.due_copies import Recopy, recopy
from lakeproof.commands.pending_work import compaction_has_work
from lakeproof.commands.status import StatusReport, slot_gap, status
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.drain.slot_health import SlotHealth, slot_health
from lakeproof.errors import LakeproofError
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.postgres.connection import connect
from lakeproof.postgres.connection_timeouts import Patience, within
from lakeproof.postgres.replication_slot import SlotState, read_slot
from lakeproof.postgres.server import identify
from lakeproof.proof.record import LakeProved, Proved, due, histories_due, read_proved, read_views, views_due
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from resources.run_lock import hold_run_lock, is_working

_LOG = logging.getLogger("lakeproof.dagster")
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


@dataclass(frozen=True, slots=True)
class LastProofs:
    """What was proved last of a source's tables and of the views that read it."""

    tables: Mapping[TableName, Proved]
    views: Mapping[str, LakeProved]


@dataclass(frozen=True, slots=True)
class DueProofs:
    """The tables, histories and views that a scheduled proof takes now."""

    tables: list[TableName]
    histories: list[TableName]
    views: list[str]


class Settings(dg.ConfigurableResource["Settings"]):
    """Where `lakeproof.yaml` is; it is read anew by every run and every tick, so an edit of a value needs no reload.

    Secrets come from the environment of the process that uses them, and never enter run configuration. Every method
    raises what it meets of `lakeproof.errors`.
    """

    config_path: str

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """In a run: take the lock of its job, which tells others that its process lives."""
        if context.run is None:
            return
        try:
            hold_run_lock(self.config().lake, context.run.job_name)
        except (LakeproofError, OSError) as error:
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
        with within(Patience(PATIENCE_S)), connect(chosen.dsn, "lakeproof dagster") as connection:
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

    def last_proofs(self, source: str) -> LastProofs:
        """The lake's record of what was proved last; no server is asked."""
        lake = self.config().lake
        store, paths = open_store(lake), LakePaths(lake, source)
        return LastProofs(read_proved(store, paths), read_views(store, paths))

    def due_for_proof(self, source: str, views: Sequence[str]) -> DueProofs:
        """Of the configured tables, their histories and `views`, those whose turn it is; no server is asked."""
        chosen, last, cut = self.config().sources[source], self.last_proofs(source), self.newest_cut(source)
        in_lake = {} if cut is None else cut.tables
        rows = {table: in_lake[table].history_sum.rows for table in chosen.tables if table in in_lake}
        return DueProofs(
            due(chosen.tables, last.tables, chosen.proof_rows),
            histories_due(rows, last.tables, chosen.proof_rows),
            views_due(views, last.views),
        )

    def has_work(self, source: str) -> bool:
        """Whether a compaction would write something, or end a cycle that was interrupted."""
        return compaction_has_work(self.config(), source)
