"""The state of every source, view and group that a caller asks for, with what their servers answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lakeproof.concurrently import TIMEOUT_S, run_concurrently
from lakeproof.config.model import Config
from lakeproof.postgres.catalog.selection import unpublished
from lakeproof.postgres.connections.connect import connect
from lakeproof.state.slot import see_server
from lakeproof.state.source import ServerLook
from lakeproof.state.source_state import SourceState
from lakeproof.state.status import StatusReport, lake_status

if TYPE_CHECKING:
    from lakeproof.compaction.sizes import LakeSizes


def status(
    config: Config,
    names: Iterable[str] | None = None,
    *,
    sizes: Callable[[str], LakeSizes] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> StatusReport:
    """Look at the sources `names`, the views that read them and the groups that they are in, at all of these by default.

    A server that has not answered after `timeout_s` is a problem of its source.
    """
    chosen = list(config.sources if names is None else names)
    # All at once: a server that hangs is a problem of its source only.
    looks = run_concurrently(chosen, lambda name: _look(SourceState.of(config, name)), timeout_s)
    return lake_status(config, chosen, looks, sizes)


def _look(state: SourceState) -> ServerLook:
    with connect(state.source.dsn, "lakeproof status") as connection:
        return ServerLook(state, see_server(connection, state), unpublished(connection, state.source))
