"""A view's cycle: what a killed one left is removed, then one commit, then the cut that names it.

The rows and files of the commit are chosen elsewhere: `refresh` and `optimize` each pass their own. Steps 3 and 4, durable
and cut, are those of any cycle (`lakeproof.lake.cycle.steps.publish_cut`). What a view's cycle does not have, and why:

    intent    A killed cycle of tables is finished from the same inputs, since history must have each change once. A view has
              no history, and a refresh corrects whatever rows the table has: a killed one is removed and made again, at
              newer cuts. So nothing needs to be durable before the commit.
    lease     One lock serves all views of a lake (`one_refresh`, which the caller holds), and views have no epochs. A commit
              stands on the version that was read; the lock is looked at again before the cut.
    several   A cycle has one view, so its one commit is all or nothing: there is no held table and no attempt to count, and
    tables    an error ends the cycle without a cut.
    consumed  A view consumes no segment. Its number is not the newest cut's plus 1 either: see `ViewsLock`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakeproof.lake.cycle.steps import publish_cut
from lakeproof.lake.delta.committer import commit_number
from lakeproof.lake.delta.log.cleaned import clean_log
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_version, read_commit
from lakeproof.lake.records.views.cuts import ViewCut, ViewsLock, put_cut, view_path
from lakeproof.names import CycleNumber
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class ViewCycle:
    """A view's cycle that has begun, under `number`, on the table at `path`, whose version is `before`.

    `durable` is the version that the view's newest cut names, and that is durable already; `lock` that of `one_refresh`.
    """

    store: Store
    lock: ViewsLock
    path: str
    number: CycleNumber
    before: int
    durable: int


def app_id(view: str) -> str:
    """Return the application id of a view's refreshes in its Delta log."""
    return f"lakeproof/views/{view}"


def begin_view_cycle(store: Store, view: str, newest: ViewCut | None, lock: ViewsLock) -> ViewCycle:
    """Remove what a killed cycle left, and take a number; `newest` is the view's newest cut. Writes nothing else.

    Commits that no cut names are taken back, unless somebody has built on them. A log that ends before `newest`'s
    version belongs to another table: the one that the cut names was moved away.
    """
    path = view_path(store, view)
    durable = NO_VERSION if newest is None or newest_version(path) < newest.delta_version else newest.delta_version
    clean_log(path, durable, lambda commit: commit_number(commit, app_id(view), "number") is not None, lock.check)
    before = newest_version(path)
    number = lock.next_number(_newest_in_log(path, view, newest, before))
    return ViewCycle(store, lock, path, number, before, durable)


def end_view_cycle(cycle: ViewCycle, cut_at: Callable[[str], ViewCut]) -> ViewCut:
    """Make the cycle's commit durable, put the cut that `cut_at` makes of the time, and return it.

    Raises TransientError if another process refreshes, too.
    """

    def put(created_at: str) -> ViewCut:
        cycle.lock.check()
        cut = cut_at(created_at)
        put_cut(cycle.store, cut)
        return cut

    return publish_cut({cycle.path: cycle.durable}, cycle.store, put)


def _newest_in_log(path: str, view: str, cut: ViewCut | None, newest: int) -> int:
    """Return the greatest number in this view's log after its newest `cut`; 0 if there is none."""
    number = 0
    named = NO_VERSION if cut is None else cut.delta_version
    for version in range(newest, named, -1):  # of ours, only those that others have built on
        commit = read_commit(path, version)
        if commit is not None:
            number = max(number, commit.txns.get(app_id(view), 0))
    return number
