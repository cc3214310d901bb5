"""Refreshes views beside the cycles of a follower, in threads of its own: a slow view keeps no cycle and no view waiting.

Computing a view does not belong here (`lakeproof.views`), nor deciding when it is behind: whoever makes cuts asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.events import Event, Report
from lakeproof.follow.worker import Worker
from lakeproof.lake.records.views.cuts import (
    ViewsLock,
    check_free_to_refresh,
    newest_view_cut_number,
    one_refresh,
)
from lakeproof.lake.rows.memory import views_at_once
from lakeproof.lake.spark.driver import DriverLostError
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.state.due_work import due_views
from lakeproof.storage.open import open_store
from lakeproof.views.applied import AppliedViews

if TYPE_CHECKING:
    from lakeproof.views.round import ViewReport

# The pause after an error: another process that refreshes or maintains views, or a damaged document.
_PAUSE_S = 5.0
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class ViewPace:
    """The times of a follower's views.

    `drift_look_s`: it looks for drift as often as the schedule in Dagster does, at the most. `slow_s`: a refresh that takes
    longer has a slow view: those that have ended are then refreshed at newer cuts beside it.
    """

    drift_look_s: float = 60.0
    slow_s: float = 10.0


class ViewRefresher(Worker):
    """Refreshes the named views, all at the same cuts, each time after `ask` and when one has drifted.

    Several calls meanwhile are one refresh.

    The block ends when the refresh in progress has ended. `refreshed` is called from the thread after each that wrote.
    """

    def __init__(
        self,
        config: Config,
        views: Collection[str],
        spark: AnySpark,
        report: Report,
        refreshed: Callable[[Sequence[ViewReport]], None],
        *,
        pace: ViewPace = ViewPace(),
    ) -> None:
        super().__init__("lakeproof views")
        self._config, self._names, self._spark = config, list(views), SparkOnDemand.of(spark)
        self._report, self._refreshed, self._pace = report, refreshed, pace
        self._asked = threading.Event()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        # It waits for whatever is asked of it.
        self._asked.set()
        super().__exit__(kind, error, traceback)

    def ask(self) -> None:
        """Ask for a refresh at the cuts that there are when it begins."""
        self._asked.set()

    def _work(self) -> None:
        while True:
            # A view that has drifted is due without a cut.
            self._asked.wait(self._pace.drift_look_s)
            self._asked.clear()
            if self._ended.is_set():
                return
            self._refresh_or_wait()

    def _refresh_or_wait(self) -> None:
        try:
            self._refresh()
        except DriverLostError:
            raise
        except TransientError as error:
            self._again(error)
        except LakeproofError as error:
            # One view's fault does not come here: this concerns all of them, and the next cut may be the remedy.
            self._report(Event("follow.views", f"views were not refreshed: {error}", {"error": str(error)}))
            self._ended.wait(_PAUSE_S)

    def _again(self, error: TransientError) -> None:
        self._report(Event("follow.views", f"{error}; again in {_PAUSE_S:.0f} s", {"error": str(error)}))
        self._ended.wait(_PAUSE_S)
        self._asked.set()

    def _refresh(self) -> None:
        behind = due_views(self._config, self._names)
        if not behind:
            return
        # Imported here, and below, because it imports Spark.
        from lakeproof.views.round import Round, refresh_under

        store = open_store(self._config.location)
        check_free_to_refresh(store)
        with self._spark.in_use():
            # Before the lock: it may take half a minute to start, for which no other refresh need wait.
            session = self._spark.get()
            with one_refresh(store) as lock, ThreadPoolExecutor(1, "lakeproof views") as pool:
                at_work = _AtWork(AppliedViews.read(self._config, store), behind)
                whole = Round(lock, int(newest_view_cut_number(store)) + 1, ended=at_work.ended)
                refreshed = pool.submit(refresh_under, whole, self._config, behind, session, self._report)
                try:
                    self._refresh_meanwhile(refreshed, lock, at_work)
                finally:
                    self._tell(refreshed.result())

    def _refresh_meanwhile(self, refreshed: Future[list[ViewReport]], lock: ViewsLock, at_work: _AtWork) -> None:
        """Wait for the refresh of all; beside its slow views, refresh the other views each time that somebody asks."""
        began_s, again = time.monotonic(), False
        while not wait([refreshed], _LOOK_S).done:
            if time.monotonic() - began_s > self._pace.slow_s and self._asked.is_set() and not self._ended.is_set():
                self._asked.clear()
                again = True
                self._refresh_others(lock, at_work)
        if again:
            # Those that were at work are behind by now.
            self._asked.set()

    def _refresh_others(self, lock: ViewsLock, at_work: _AtWork) -> None:
        """Refresh views that are behind and independent of the views at work, on the threads that are free."""
        threads = views_at_once(self._spark.get(), self._config.views_at_once) - at_work.count
        apart = at_work.apart(self._names)
        behind = due_views(self._config, apart) if threads > 0 and apart else []
        if behind:
            from lakeproof.views.round import Round, refresh_under

            this = Round(lock, int(lock.next_number(0)), threads)
            self._tell(refresh_under(this, self._config, behind, self._spark.get(), self._report))

    def _tell(self, views: Sequence[ViewReport]) -> None:
        self._refreshed([view for view in views if view.stands_still is None])


class _AtWork:
    """The views of a refresh that have not ended yet."""

    def __init__(self, applied: AppliedViews, names: Collection[str]) -> None:
        self._applied = applied
        self._waits_for = applied.in_order(names)
        self._open = set(self._waits_for)
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of those that wait for no other one."""
        with self._lock:
            return sum(self._waits_for[name].isdisjoint(self._open) for name in self._open)

    def ended(self, name: str) -> None:
        """Take one out that has ended."""
        with self._lock:
            self._open.discard(name)

    def apart(self, names: Collection[str]) -> list[str]:
        """Return those of the views that are not at work, and have no view in common with one that is."""
        with self._lock:
            taken = set(self._applied.in_order(sorted(self._open)))
        return [name for name in names if taken.isdisjoint(self._applied.in_order([name]))]
