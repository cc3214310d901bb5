"""The configuration file as a resource, and the cheap reads of a source and its lake that sensors and metadata need.

Decisions do not belong here (`orchestration.policies`), nor anything that writes (`lakeproof.commands`).
"""

import logging
from collections.abc import Iterable
from pathlib import Path

import dagster as dg

from lakeproof.compaction.pending import compaction_has_work
from lakeproof.config.load import load
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError
from lakeproof.lake.planning.set_aside import set_aside
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import HeldReport, describe_all
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.state.due_work import FollowState, follow_state
from lakeproof.state.slot import SlotStatus, ask_slot
from lakeproof.state.status import StatusReport, lake_status
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Lock

_LOG = logging.getLogger("lakeproof.dagster")
# A look if a run lives takes microseconds; a process that has the lock for longer keeps it, and must not stop a run.
_ATTEMPT_S = 5.0
# A process that makes several runs, as tests do, needs one lock for all runs of a job; by the lock's URL.
_locks: dict[str, Lock] = {}


def hold_run_lock(lake: LakeLocation | str, job: str, attempt_s: float = _ATTEMPT_S) -> None:
    """Hold the lock of `job`'s runs until this process ends; raise OSError if the lake can't be written to.

    Dagster reports STARTED for ever for a run whose process was killed. The lock is freed at that moment, and not before: a
    run that freed the lock while it ends would be taken for a dead one. It is shared, as several runs of a job may live at
    once; the engine's own locks keep two writers out of the lake. `orchestration.policies.run` draws the conclusions.
    """
    store, key = open_store(lake), LakePaths.run_lock(job)
    place = store.url(key)
    if place in _locks:
        return
    lock = store.share_lock(key, attempt_s)
    if lock is None:
        _LOG.warning("%s: another process holds it, so nobody will know whether this run works; see who it is", place)
        return
    _locks[place] = lock


class Settings(dg.ConfigurableResource["Settings"]):
    """The configuration, `lakeproof.yaml`, and the state of its sources: slots, landings, cuts and proofs.

    Every run and every tick reads the file again, so editing a value needs no reload; new tables and views need one.

    Secrets come from the environment of the process that uses them, and never enter run configuration. Every method may
    raise the errors of `lakeproof.errors`.
    """

    config_path: str

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Take the lock of the run's job, which shows others that its process is alive; nothing outside a run."""
        if context.run is None:
            return
        try:
            hold_run_lock(self.config().location, context.run.job_name)
        except (LakeproofError, OSError) as error:
            # The run itself will report a wrong configuration, or a lake that can't be written to, more clearly.
            _LOG.warning("run %s may be taken for dead: %s", context.run.run_id, error)

    def config(self) -> Config:
        """Return the whole configuration."""
        return load(Path(self.config_path), set_views_aside=True)

    def slot_status(self, source: str) -> SlotStatus:
        """Return the source's slot as its server sees it now, and the gap if it can't be drained.

        A server that does not answer soon is a TransientError: a tick must end within 60 s, and other ticks wait for it.
        """
        return ask_slot(self.config(), source, "lakeproof dagster")[1]

    def lake_status(self, source: str | None = None) -> StatusReport:
        """Return the state in the lake of a source and the views that read it, or of all sources; connects to no server."""
        return lake_status(self.config(), None if source is None else [source])

    def newest_cut(self, source: str) -> Cut | None:
        """Return the newest cut of a source, None if there is none."""
        return newest_cut(self.lake_of(source))

    def durable_through(self, source: str) -> str:
        """Return up to where a source's changes are durable in the landing, in words; connects to no server."""
        chain = Chain.open_newest(self.lake_of(source))
        return "nothing has landed yet" if chain is None else f"durable up to {chain.end}"

    def compacted_through(self, sources: Iterable[str]) -> str:
        """Return up to where sources are in the lake, in words."""
        cuts = {source: self.newest_cut(source) for source in sources}
        return "; ".join(
            f"{source} has no cut yet"
            if cut is None
            else f"{source} is in the lake up to {cut.position} (cut {cut.number})"
            for source, cut in cuts.items()
        )

    def lake_of(self, source: str) -> SourceLake:
        """Return the place of a source in the lake."""
        return SourceLake.open(self.config().location, source)

    def held_tables(self, source: str) -> dict[TableName, HeldReport]:
        """Return the tables of a source that stand still in the lake, and that somebody waits for; connects to no server."""
        cut = self.newest_cut(source)
        if cut is None or not cut.held:
            return {}
        aside = set_aside(self.config().source(source), cut.held, Chain.open_newest(self.lake_of(source)))
        return describe_all({table: held for table, held in cut.held.items() if table not in aside}, source)

    def has_live_process(self, job: str) -> bool | None:
        """Return True if a run of `job` has a process; None if that is unknown."""
        try:
            return open_store(self.config().location).is_locked(LakePaths.run_lock(job))
        except (OSError, LakeproofError):
            return None

    def follow_state(self, source: str) -> FollowState:
        """Return what the lake shows of a process that follows the source's landing; connects to no server."""
        return follow_state(self.lake_of(source))

    def has_work(self, source: str) -> bool:
        """Return True if a compaction would write something, or finish an interrupted cycle."""
        return compaction_has_work(self.config(), source)
