"""Drops a source's slot, and the publications that lakeproof made for it; the lake stays as it is.

A forgotten slot keeps WAL until the source's disk is full, which is why this command exists. Deleting a lake does not belong
here: the folder's owner does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Identifier

from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import SourceError, TransientError
from lakeproof.events import Event, Report, counted, silent
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.checks.privileges import as_identifier, not_owned, role_name
from lakeproof.postgres.connections.connect import Connection, connect, rows, source_errors
from lakeproof.postgres.publications import read_publications
from lakeproof.postgres.replication_slot import SlotState, drop_slot, in_use, read_slot, slot_problem
from lakeproof.postgres.server import identify
from lakeproof.publication.draft import check_follows

_TERMINATE = SQL("SELECT pg_catalog.pg_terminate_backend({pid}) AS done")


@dataclass(frozen=True, slots=True)
class TeardownReport:
    """The things that were dropped: the slot's name (None if there was none) with the WAL it held back; the publications.

    `kept` are those that somebody else made, and that may have other readers.
    """

    source: str
    slot: str | None
    released_bytes: int | None
    publications: tuple[str, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TeardownPlan:
    """The things that `teardown` would drop: the slot (None if there is none), who reads it, the WAL that it keeps.

    `publications` are those that lakeproof made; this role may not drop the `not_owned` among them. `kept` are those that
    somebody else made, and that may have other readers.
    """

    source: str
    slot: str | None
    active_pid: int | None
    retained_bytes: int | None
    publications: tuple[str, ...]
    not_owned: tuple[str, ...]
    kept: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if all of it would be done: nobody reads the slot, and the role may drop each publication."""
        return self.active_pid is None and not self.not_owned

    @property
    def would(self) -> str:
        """Return what would be done, in words."""
        things = [f"slot {self.slot}"] if self.slot is not None else []
        things += [f"publication {name}" for name in self.publications if name not in self.not_owned]
        text = f"drop {' and '.join(things)}" if things else "drop nothing, since there is nothing of lakeproof's"
        if self.active_pid is not None:
            text += f", and would be refused: process {self.active_pid} reads the slot"
        left = [f"publication {name} stays for its owner to drop, which this role is not" for name in self.not_owned]
        left += [kept_in_words(self.kept)] if self.kept else []
        return "; ".join([text, *left])


def kept_in_words(names: Sequence[str]) -> str:
    """Return why publications stay, and how they go."""
    drop = f"DROP PUBLICATION {', '.join(map(as_identifier, names))}"
    return f"publication {', '.join(names)} stays, since lakeproof did not make it (if nobody else reads it: {drop})"


def plan_teardown(config: Config, name: str, *, end_drain: bool = False) -> TeardownPlan:
    """Return what `teardown` would drop for the source `name`; nothing is changed.

    With `end_drain` nobody is called the slot's reader.

    Raises SourceError for a foreign slot, or a publication of another source.
    """
    source = config.source(name)
    with connect(source.dsn, "lakeproof teardown") as conn:
        own, kept = _publications(conn, source)
        state = read_slot(conn, source.slot)
        if state is not None:
            _check_ours(conn, state)
        return TeardownPlan(
            name,
            None if state is None else state.name,
            None if state is None or end_drain else state.active_pid,
            None if state is None else state.retained_bytes,
            own,
            tuple(not_owned(conn, own)),
            kept,
        )


def teardown(config: Config, name: str, report: Report = silent, *, end_drain: bool = False) -> TeardownReport:
    """Drop the slot of the source `name`, then the publications that lakeproof made for it.

    `end_drain` ends the connection of the slot's reader. Raises TransientError if the slot is in use otherwise,
    SourceError if it is not one of this source, or a publication is another source's: then nothing is dropped. Raises
    SourceError also if the role may not drop a publication: the slot is gone by then, and so are the other publications.
    """
    source = config.source(name)
    with connect(source.dsn, "lakeproof teardown") as conn:
        own, kept = _publications(conn, source)
        others = not_owned(conn, own)
        released = _drop_slot(conn, source, end_drain=end_drain)
        if released is not None:
            message = f"slot {source.slot} is gone; {counted(released, 'byte')} of WAL released"
            report(Event("teardown.slot", message, {"source": name, "slot": source.slot, "released_bytes": released}))
        owned = tuple(publication for publication in own if publication not in others)
        for publication in owned:
            with source_errors(f"publication {publication}"):
                conn.execute(SQL("DROP PUBLICATION {}").format(Identifier(publication)))
            report(Event("teardown.publication", f"publication {publication} is gone", {"source": name}))
        if others:
            drop = ", ".join(map(as_identifier, others))
            stays = f"; {kept_in_words(kept)}" if kept else ""
            raise SourceError(
                f"publication {others[0]}",
                f"role {role_name(conn)} does not own it, so it may not drop it; the slot is gone{stays}",
                f"let the owner run DROP PUBLICATION {drop}",
            )
    return TeardownReport(name, None if released is None else source.slot, released, owned, kept)


def _publications(conn: Connection, source: SourceConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the source's publications that lakeproof made, and all others; raise SourceError for one of another source."""
    names = publications_of(conn, source)
    existing = read_publications(conn, names)
    check_follows(source, existing.values())
    own = tuple(name for name in names if existing[name].ours)
    return own, tuple(name for name in names if name not in own)


def _drop_slot(conn: Connection, source: SourceConfig, *, end_drain: bool) -> int | None:
    """Drop the slot; returns the bytes of WAL that it held back, None if there is no slot."""
    state = read_slot(conn, source.slot)
    if state is None:
        return None
    _check_ours(conn, state)
    if state.active:
        if not end_drain:
            busy = in_use(conn, source.slot)
            raise TransientError(busy.thing, busy.reason, "stop the drain first, or ask for it to be ended")
        rows(conn, _TERMINATE, {"pid": state.active_pid}, about=f"slot {source.slot}")
    return (state.retained_bytes or 0) if drop_slot(conn, source.slot) else None


def _check_ours(conn: Connection, state: SlotState) -> None:
    """Raise SourceError for a slot of another source; we may drop a lost slot, and one with two_phase."""
    problem = slot_problem(state, identify(conn).database)
    if problem is not None and not state.lost and not state.two_phase:
        raise problem
