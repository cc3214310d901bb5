"""Finds how far the landing can be read beyond a cut, all tables at one position: what the next cycle would take of it.

Reading tables there belongs to `lakeproof.lake.read`. Nothing is written, no lease is taken, and no server is asked.

The plan is the next cycle's own, without an end but the landing's. So it ends before the first transaction with another
schema, leaves tables that are held or suspect where they stand, and gives rows the ordinals that a cycle would. A copy that
waits enters with a cycle only. The reader's cut and segments stay as they are if a cycle runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, location_of
from lakeproof.errors import InvariantError, LakeError
from lakeproof.lake.planning.group_position import group_position
from lakeproof.lake.planning.plan import CyclePlan, RangeLimit, plan_cycle
from lakeproof.lake.records.cuts.choice import NEWEST, LakeAtCuts, check_kept, cuts_at, only_source
from lakeproof.lake.records.documents import Created, Cut, CutTable, CycleKind, TableIntent
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.landing.chain import Chain
from lakeproof.landing.missing import no_landing
from lakeproof.landing.segments.reader import Slice, slices, verified
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake

# Where `open` and `read` read each source: as far as has landed.
LANDING = "landing"
AT_A_CUT = "open the lake at a cut, which is `newest` by default"


class LandingRemovedError(LakeError):
    """Maintenance has removed what a read needs of the landing: a newer cut has it."""


@dataclass(frozen=True, slots=True)
class LandingEnd:
    """A source's tables beyond `cut`, all at `position` but the `held` ones, which stand where the cut has them.

    `tables` are those with changes since the cut, or created since; `files` have the changes, and `first_ordinals` their
    place. `stopped` is why `position` is not the landing's end; None if it is.
    """

    chain: Chain
    cut: Cut
    position: Lsn
    held: Mapping[TableName, Held]
    tables: Mapping[TableName, TableIntent] = field(default_factory=dict)
    files: Mapping[TableName, Sequence[Slice]] = field(default_factory=dict)
    first_ordinals: Mapping[int, int] = field(default_factory=dict)
    stopped: str | None = None

    def version(self, table: TableName) -> SchemaVersion:
        """Return a table's schema; raises LakeError if there is no such table, or if the cut is not kept any more."""
        check_kept(self.lake, self.cut)
        intent, before = self.tables.get(table), self.cut.tables.get(table)
        if intent is not None and isinstance(intent.work, Created):
            return intent.work.version
        if before is None:
            raise LakeError(
                f"{self.lake.source}: {table}", f"it is not in the lake at {self.position}", "see `tables()`"
            )
        return before.version

    def before(self, table: TableName) -> CutTable | None:
        """Return the table as the changes find it, at the cut; None if it was created since."""
        intent = self.tables.get(table)
        return None if intent is not None and isinstance(intent.work, Created) else self.cut.tables.get(table)

    def verified(self, table: TableName) -> Sequence[Slice]:
        """Return the files with the table's changes; raises LakeError for one that is missing or not as it was written."""
        return verified(self.files.get(table, ()))

    def reading(self, table: TableName) -> AbstractContextManager[None]:
        """Raise LandingRemovedError for an error of the block that comes from the removal of what has landed of a table."""
        start = self.tables[table].from_lsn if table in self.tables else self.cut.position
        return _reading(self.chain, self.cut, start)

    @property
    def lake(self) -> SourceLake:
        """The source's part of the lake."""
        return self.chain.lake


class LakeAtLanding(LakeAtCuts):
    """A lake pinned at the end of each source's landing, on top of `cuts`: what readers have in common."""

    __slots__ = ()
    ends: Mapping[str, LandingEnd]

    def __repr__(self) -> str:
        """Return the folder and the positions."""
        ends = ", ".join(
            f"{name} at {end.position} (cut {end.cut.number} and what has landed)" for name, end in self.ends.items()
        )
        return f"<lake {self.lake}: {ends or 'no cut yet'}>"

    def position(self, source: str) -> Lsn:
        """Return the position of the source's tables (held ones excepted); raises LakeError if the lake has no cut of it."""
        return self.end(source).position

    def held(self, source: str) -> Mapping[TableName, Held]:
        """Return the tables that stand where the cut has them, and why."""
        return self.end(source).held

    def stopped(self, source: str) -> str | None:
        """Return why the tables stand before the landing's end; None if they don't."""
        return self.end(source).stopped

    def tables(self, source: str | None = None) -> list[TableName]:
        """Return the tables of a source, which may be left out if there is one; those created since the cut among them."""
        end = self.end(only_source("tables", self.sources, source))
        return sorted(end.cut.tables.keys() | end.tables.keys())

    def view_cut(self, name: str) -> ViewCut:
        """Raise LakeError: views are computed at cuts."""
        raise LakeError(f"view {name[:80]}", "views are computed at cuts, not at the landing's end", AT_A_CUT)

    def end(self, source: str) -> LandingEnd:
        """Return how far the source's landing is read; raises LakeError if the lake has no cut of it."""
        self.cut(source)
        return self.ends[source]


def landing_end(lake: SourceLake, cut: Cut, limit: Lsn | None = None) -> LandingEnd:
    """Return how far the landing can be read beyond `cut`, `limit` at most; raises LakeError if there is no landing."""
    chain = Chain.open_newest(lake)
    if chain is None:
        raise no_landing(lake)
    if chain.incarnation != cut.incarnation:
        reason = f"incarnation {chain.incarnation} has begun, and the lake has no cut of it yet"
        return LandingEnd(chain, cut, cut.position, cut.held, stopped=reason)
    aim = chain.end if limit is None else min(limit, chain.end)
    with _reading(chain, cut, cut.position), chain.read_once():
        plan = plan_cycle(chain, cut, {}, RangeLimit(aim))
        if plan is None or plan.kind is not CycleKind.APPLY:
            held = cut.held if plan is None else plan.held
            stopped = None if cut.position >= aim else _reason(chain, cut.position, plan)
            return LandingEnd(chain, cut, cut.position, held, stopped=stopped)
        stopped = None if plan.end >= aim else _reason(chain, plan.end, None)
        files = _files(chain, cut, plan)
    return LandingEnd(chain, cut, plan.end, plan.held, plan.tables, files, plan.ordinals.segments, stopped)


def cuts_and_ends(
    lake: Config | LakeLocation | str | Path, group: str | None = None
) -> tuple[dict[str, Cut], dict[str, LandingEnd]]:
    """Return each source's newest cut, and how far its landing can be read beyond it; of a `group`, all to one position.

    Begins again if maintenance removes what a newer cut has meanwhile. Raises LakeError if there is no landing, and for a
    group as `group_position`.
    """
    cuts: dict[str, Cut] = {}
    while True:
        before, cuts = cuts, cuts_at(lake, NEWEST, group)
        try:
            return cuts, _landing_ends(location_of(lake), cuts, group)
        except LandingRemovedError:
            if cuts == before:
                raise


@contextmanager
def _reading(chain: Chain, cut: Cut, start: Lsn) -> Iterator[None]:
    """Raise LandingRemovedError for an error of the block, which reads the landing after `start`, if that is removed."""
    try:
        yield
    except LakeError:
        chain.reread_start()
        if chain.kept_from <= start:
            raise
        thing = f"{chain.lake.source}: what has landed since cut {cut.number}"
        reason = "a later cut has it, and it is not kept any more"
        remedy = "open the lake again (`retention.landing_s` says for how long it is kept)"
        raise LandingRemovedError(thing, reason, remedy) from None


def _landing_ends(place: LakeLocation, cuts: Mapping[str, Cut], group: str | None) -> dict[str, LandingEnd]:
    store = open_store(place)
    lakes = {source: SourceLake(store, LakePaths(source)) for source in cuts}
    if group is None:
        return {source: landing_end(lake, cuts[source]) for source, lake in lakes.items()}
    limit = group_position(group, list(lakes.values())).position
    while True:
        ends = {source: landing_end(lake, cuts[source], limit) for source, lake in lakes.items()}
        least = min(end.position for end in ends.values())
        if all(end.position == least for end in ends.values()):
            return ends
        if least >= limit:
            raise InvariantError(f"group {group}", f"a source can't be read at {limit}", "report this")
        # One source stops earlier: the others have to stop there, too.
        limit = least


def _files(chain: Chain, cut: Cut, plan: CyclePlan) -> dict[TableName, list[Slice]]:
    """Return the files of each table with changes; a table that was created begins where it entered the stream."""
    files: dict[TableName, list[Slice]] = {table: [] for table in plan.tables}
    for piece in slices(chain, cut.position, plan.end):
        if piece.file.table in files:
            files[piece.file.table].append(piece)
    for table, intent in plan.tables.items():
        if isinstance(intent.work, Created):
            files[table] = list(slices(chain, intent.from_lsn, plan.end, table))
    return files


def _reason(chain: Chain, position: Lsn, plan: CyclePlan | None) -> str:
    """Return what comes right after `position`, so that the tables can't be read together beyond it."""
    tables = set() if plan is None else set(plan.tables)
    if plan is None:
        after = Lsn(int(position) + 1)
        entries = (entry for manifest in chain.between(position, after) for entry in manifest.schemas)
        tables = {entry.version.table for entry in entries if entry.from_lsn == after}
    if not tables:
        return "what the catalog's records say of a table comes right after it, and has to enter by a cycle"
    return f"the schema of {', '.join(sorted(map(str, tables)))} changes right after it, and has to enter by a cycle"
