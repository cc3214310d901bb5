"""Refreshes views beside the cycles of a follower, in a thread of its own: a slow view keeps no cycle waiting.

Computing a view does not belong here (`lakeproof.views`), nor deciding when it is behind: whoever makes cuts asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from types import TracebackType

from pyspark.sql import SparkSession

from lakeproof.commands.pending_work import due_views
from lakeproof.commands.refresh import ViewReport, refresh
from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.events import Event, Report
from lakeproof.lake.spark.session import DriverLostError

# The pause after an error: another process that refreshes or maintains views, or a damaged document.
_PAUSE_S = 5.0
# As often as the schedule in Dagster looks, at the most.
_DRIFT_LOOK_S = 60.0


class ViewRefresher:
    """Refreshes the named views, all at the same cuts, each time after `ask` and when one has drifted.

    Several calls meanwhile are one refresh.

    The block ends when the refresh in progress has ended. `refreshed` is called from the thread after each that wrote.
    """

    def __init__(
        self,
        config: Config,
        views: Collection[str],
        spark: SparkSession,
        report: Report,
        refreshed: Callable[[Sequence[ViewReport]], None],
    ) -> None:
        self._config, self._names, self._spark = config, list(views), spark
        self._report, self._refreshed = report, refreshed
        self._asked, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="lakeproof views")
        self._error: BaseException | None = None

    def __enter__(self) -> ViewRefresher:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._asked.set()
        self._thread.join()

    def ask(self) -> None:
        """Ask for a refresh at the cuts that there are when it begins."""
        self._asked.set()

    def check(self) -> None:
        """Raise the error that has ended the thread: the driver's end, or one that is not the engine's own."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while True:
                # A view that has drifted is due without a cut.
                self._asked.wait(_DRIFT_LOOK_S)
                self._asked.clear()
                if self._ended.is_set():
                    return
                self._refresh_or_wait()
        except BaseException as error:  # noqa: BLE001  the follower's thread raises it
            self._error = error

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
        if behind:
            views = refresh(self._config, behind, self._spark, self._report)
            self._refreshed([view for view in views if view.held is None])
