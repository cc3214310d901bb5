"""Follows the landing of a source or a group: in one process, a cycle as soon as what has landed is worth one.

Cycles themselves are in `lakeproof.compaction`, refreshing the views after them in `views`, proving what changed in
`proofs`. Keeping the process alive is its caller's (in Dagster, `orchestration.policies.lasting`).

The follower keeps the leases from one cycle to the next. Another process that wants one (a proof, maintenance, a compaction
by hand, the follower's own successor) waits for its turn and gets it between two cycles. After a transient error the cycle
is tried again; a lost driver of Spark's ends the follower. Spark's process is ended once nothing has needed it for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeproof.compaction.group import compact_group_under
from lakeproof.compaction.pending import compaction_has_work, group_has_work
from lakeproof.compaction.source import compact_under
from lakeproof.config.model import Config
from lakeproof.config.view_graph import readers_of
from lakeproof.errors import TransientError
from lakeproof.events import Event, RunControl
from lakeproof.failpoints import failpoint
from lakeproof.follow.proofs import ContinuousProofs
from lakeproof.follow.views import ViewRefresher
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.planning.landing.waiting import LandingTail
from lakeproof.lake.records.lease import Lease, hold_lease, someone_waits
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.driver import DriverLostError
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.storage.open import folder_to_check
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from lakeproof.views.round import ViewReport

# Between two looks at the landing, and at who waits: microseconds in a folder, two requests on an object store.
_LOOK_S, _LOOK_S_REMOTE = 0.2, 1.0
# Other work than changes (a snapshot that has finished, another incarnation) takes listings to find.
_OTHER_WORK_S = 5.0
# A view is also behind if its definition has changed or its table is gone; to find that, the lake's state is read.
_VIEWS_S = 60.0
_PAUSE_S_FIRST, _PAUSE_S_MAX = 1.0, 60.0
# A follower that gives its lease up so shortly before its end leaves the rest to its successor.
LAST_S = 120.0

Cuts = Mapping[str, Sequence[CutReport]]


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Settings of a follower: when it ends, whether it refreshes views, and who hears of its cycles and refreshes.

    `max_seconds` None: it ends when it is asked to. Both are called from the follower's own threads.
    """

    max_seconds: float | None = None
    views: bool = True
    on_cuts: Callable[[Cuts], None] = lambda _cuts: None
    on_views: Callable[[Sequence[ViewReport]], None] = lambda _views: None


@dataclass(slots=True)
class FollowReport:
    """The number of cycles of each source, of changes in them, and of refreshes; and why it ended."""

    name: str
    cycles: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    refreshes: int = 0
    reason_for_end: str = "asked"


@dataclass(slots=True)
class Follower:
    """One follower at work: its sources, what runs beside its cycles, and what it has done."""

    config: Config
    name: str
    spark: SparkOnDemand
    control: RunControl
    options: FollowOptions
    lakes: Sequence[SourceLake]
    proofs: ContinuousProofs
    done: FollowReport = field(init=False)
    _began_s: float = field(init=False)
    _look_s: float = field(init=False)
    _views: ViewRefresher | None = None
    _asked_s: float = 0.0

    def __post_init__(self) -> None:
        self.done = FollowReport(self.name)
        self._began_s = time.monotonic()
        self._look_s = _LOOK_S_REMOTE if folder_to_check(self.config.location) is None else _LOOK_S

    def run(self) -> None:
        """Take turns until the end."""
        pause_s = _PAUSE_S_FIRST
        while not self._is_over():
            before = self.done.changes, sum(self.done.cycles.values())
            try:
                self._turn()
            except DriverLostError:
                raise
            except TransientError as error:
                if (self.done.changes, sum(self.done.cycles.values())) != before:
                    pause_s = _PAUSE_S_FIRST
                self.control.report(
                    Event(
                        "follow.again", f"{error}; again in {pause_s:.0f} s", {"error": str(error), "pause_s": pause_s}
                    )
                )
                self.control.stop.wait(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            else:
                pause_s = _PAUSE_S_FIRST
                if self._seconds_left() < LAST_S and not self._is_over():
                    self.done.reason_for_end = "followed by another process"
                    return

    @contextmanager
    def views_refreshed(self) -> Iterator[None]:
        """Refresh the views that read the sources, beside the cycles of the block."""
        names = self._views_that_read()
        if not self.options.views or not names:
            yield
            return
        self._views = ViewRefresher(self.config, names, self.spark, self.control.report, self._refreshed)
        with self._views:
            yield

    def _refreshed(self, views: Sequence[ViewReport]) -> None:
        self.done.refreshes += 1
        self.options.on_views(views)

    def _views_that_read(self) -> list[str]:
        return [view.name for view in readers_of(self.config.views, [lake.source for lake in self.lakes])]

    def _seconds_left(self) -> float:
        limit = self.options.max_seconds
        return float("inf") if limit is None else limit - (time.monotonic() - self._began_s)

    def _is_over(self) -> bool:
        if self.control.stop.requested:
            return True
        if self._seconds_left() > 0:
            return False
        self.done.reason_for_end = "its time was over"
        return True

    def _turn(self) -> None:
        """Hold the leases, and run cycles until the end or until somebody else waits for one of them."""
        self._report("follow.waits", "waits for its turn")
        while self._someone_waits():
            # Whoever waits looks now and then, and would find the lease taken again.
            if self.control.stop.wait(self._look_s):
                return
        with ExitStack() as stack:
            leases = [stack.enter_context(hold_lease(lake, self.spark, self.control.stop)) for lake in self.lakes]
            self._report("follow.turn", "has its turn")
            # What was interrupted, or was left by whoever had the lease before, comes first; views may be behind too.
            self._compact(leases)
            self._ask_for_views()
            tails = self._tails()
            looked_s = time.monotonic()
            while not self._is_over() and not self._someone_waits():
                now_s = time.monotonic()
                self._look_beside(now_s)
                is_due = self._are_worth_it(tails, now_s)
                if not is_due and now_s - looked_s >= _OTHER_WORK_S:
                    looked_s, is_due = now_s, self._has_other_work()
                if not is_due:
                    if self.spark.give_back(self.config.spark.idle_s):
                        self._report("follow.spark", "has ended Spark's process, which nothing needed")
                    self.control.stop.wait(self._look_s)
                    continue
                failpoint("follow.before_cycle")
                if self._compact(leases):
                    self._ask_for_views()
                tails = self._moved(tails)

    def _report(self, kind: str, state: str) -> None:
        self.control.report(Event(kind, f"the compaction of {self.name} {state}", {"name": self.name}))

    def _someone_waits(self) -> bool:
        return any(someone_waits(lake) for lake in self.lakes)

    def _are_worth_it(self, tails: Mapping[str, LandingTail], now_s: float) -> bool:
        waiting = {source: tail.look(now_s) for source, tail in tails.items()}
        return any(w.are_worth_a_cycle(self.config.source(s).compaction, now_s) for s, w in waiting.items())

    def _has_other_work(self) -> bool:
        """Return True for work that no manifest with rows announces; False while a group has to wait for a source."""
        if self.name not in self.config.groups:
            return compaction_has_work(self.config, self.name)
        try:
            return group_has_work(self.config, self.name)
        except TransientError:
            return False

    def _tails(self) -> dict[str, LandingTail]:
        now_s, tails = time.monotonic(), {}
        for lake in self.lakes:
            chain = Chain.open_newest(lake)
            cut = newest_cut(lake)
            # In another incarnation than the cut's, only what else there is to do counts: the switch is not a range.
            if chain is not None and cut is not None and cut.incarnation == chain.incarnation:
                tails[lake.source] = LandingTail.after(chain, cut.position, now_s)
        return tails

    def _moved(self, tails: dict[str, LandingTail]) -> dict[str, LandingTail]:
        """Return the tails behind the newest cuts, opened anew if a source has no tail or is in another incarnation."""
        for lake in self.lakes:
            cut, tail = newest_cut(lake), tails.get(lake.source)
            if cut is None or tail is None or cut.incarnation != tail.chain.incarnation:
                return self._tails()
            tail.drop_until(cut.position)
        return tails

    def _compact(self, leases: Sequence[Lease]) -> bool:
        """Run the cycles that are due; True if there was one."""
        config, control = self.config, self.control
        if self.name in config.groups:
            cuts: Cuts = compact_group_under(leases, config, self.name, self.spark, control).cuts
        else:
            (lease,) = leases
            cuts = {self.name: compact_under(lease, config, self.spark, control)}
        for source, ended in cuts.items():
            self.done.cycles[source] = self.done.cycles.get(source, 0) + len(ended)
            self.done.changes += sum(table.changes for cut in ended for table in cut.tables.values())
        if any(cuts.values()):
            self.options.on_cuts(cuts)
        return any(cuts.values())

    def _look_beside(self, now_s: float) -> None:
        """Raise what has ended proofs or refreshes of views, and ask for a refresh if nobody has for a while."""
        self.proofs.check()
        if self._views is not None:
            self._views.check()
            if now_s - self._asked_s >= _VIEWS_S:
                self._ask_for_views()

    def _ask_for_views(self) -> None:
        self._asked_s = time.monotonic()
        if self._views is not None:
            self._views.ask()
