"""The held tables that nobody waits for: paused by a person, or gone from the publication and asked for by nobody.

Showing them does not belong here: `status`, `prove`, alerts and the command line give a note of them, but report any other
held table as a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeproof.catalog.differences import Difference
from lakeproof.config.model import SourceConfig
from lakeproof.lake.planning.catalog_drift import has_ended, has_entered, has_left
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.snapshot.paused import PausedTable, read_paused
from lakeproof.storage.source_lake import SourceLake


def set_aside(source: SourceConfig, held: Mapping[TableName, Held], chain: Chain | None = None) -> set[TableName]:
    """Return those of `held` that nobody waits for. Raises what a damaged landing raises."""
    return _still_out(_paused(held) | _left(source, held), chain)


def paused_among(held: Mapping[TableName, Held], chain: Chain | None = None) -> set[TableName]:
    """Return those of `held` that a person has paused, and that nobody has published again. Raises as `set_aside`."""
    return _still_out(_paused(held), chain)


def left_behind(source: SourceConfig, held: Mapping[TableName, Held], chain: Chain | None = None) -> set[TableName]:
    """Return those of `held` that were dropped, renamed or taken out of the publication, and that nobody asks for.

    `tables` asks for a dropped or renamed table by its name alone, for one that exists by a pattern too. A configuration
    without `tables` asks for whatever is published, so for each table that has left. A table that was made again under its
    name, or published again, is none of them. Raises what a damaged landing raises.
    """
    return _still_out(_left(source, held), chain)


def with_paused(held: Mapping[TableName, Held], lake: SourceLake) -> dict[TableName, Held]:
    """Return `held` with a cause of its own for tables that left the publication since a person has paused them.

    One that came back into it without `resume` is no paused one, though `resume` is its way out.
    """
    if not any(has_left(why) or has_entered(why) for why in held.values()):
        return dict(held)
    paused = read_paused(lake)
    return {table: _with_record(why, paused.get(table)) for table, why in held.items()}


def _with_record(why: Held, entry: PausedTable | None) -> Held:
    is_paused = entry is not None and not entry.resuming
    if has_entered(why) and why.way_out in (WayOut.SNAPSHOT, WayOut.RESUME):
        return replace(why, way_out=WayOut.RESUME if is_paused else WayOut.SNAPSHOT)
    if entry is None or not has_left(why):
        return why
    if entry.resuming:
        # A `resume` that was ended before it published the table; it alone knows how the table was published.
        return replace(why, way_out=WayOut.RESUME)
    return Held(why.at_lsn, HeldCause.PAUSED, WayOut.RESUME, {"since": entry.since}, (Difference.LEFT,))


def _paused(held: Mapping[TableName, Held]) -> set[TableName]:
    return {table for table, why in held.items() if why.cause is HeldCause.PAUSED}


def _left(source: SourceConfig, held: Mapping[TableName, Held]) -> set[TableName]:
    selection = source.selection
    left = {t for t, why in held.items() if has_ended(why) and not selection.named(t)}
    if not selection:
        return left
    return left | {
        t for t, why in held.items() if has_left(why) and t.schema not in source.schemas and not selection.selected(t)
    }


def _still_out(tables: set[TableName], chain: Chain | None) -> set[TableName]:
    """Return those of `tables` that are not published by the newest record of the catalog."""
    recorded = newest_catalog(chain) if tables and chain is not None else None
    return tables - {table.table for table in recorded.tables.values()} if recorded is not None else tables
