"""Checks sources: what is wrong with each and with its lake, and what lakeproof would do. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakeproof.concurrently import TIMEOUT_S, run_concurrently
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError, DefiniteError, LakeError, LakeproofError, StoreRefusesError
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import publications_of, read_tables, with_sizes
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.checks.findings import Finding, error, errors_of, from_error, note
from lakeproof.postgres.checks.source import changes_of, examine, spread
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.postgres.replication_slot import SlotState, name_problem
from lakeproof.postgres.server import ServerIdentity
from lakeproof.publication.wishes import Candidates, read_candidates
from lakeproof.schema import LeftOutColumn
from lakeproof.snapshot.incarnation import check_lake_is_ours
from lakeproof.state.absent import absence
from lakeproof.state.slot import ServerSeen, refuse_stuck, see_server, slot_gap
from lakeproof.state.source_state import SourceState


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table as it is or would be published, and kept (`PublishedTable.kept`): by its `key`, or as a bag if that is empty.

    `pages` is its size now, with values stored out of line; `left_out` are the columns that the publication does not send;
    `changes` are the rows written since the server's statistics began; `row_filter` is the publication's, as SQL.
    """

    name: TableName
    identity: str
    key: tuple[str, ...]
    columns: int
    exact_text_columns: tuple[str, ...]
    actions: tuple[str, ...]
    pages: int
    kept: str
    left_out: tuple[LeftOutColumn, ...] = ()
    changes: int = 0
    row_filter: str | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings about a source; `server` is None if it could not be reached."""

    source: str
    server: ServerIdentity | None
    slot: SlotState | None
    publications: tuple[str, ...]
    tables: tuple[TableSummary, ...]
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return bool(errors_of(self.findings))

    @property
    def single_tables(self) -> bool:
        """True if every error is about a single table, beside which others can go on."""
        errors = {finding.table for finding in errors_of(self.findings)}
        return None not in errors and bool({table.name for table in self.tables} - errors)

    @property
    def try_again(self) -> bool:
        """True if every error may pass by itself."""
        return self.refused and all(finding.transient for finding in errors_of(self.findings))


def check_source(config: Config, name: str) -> CheckReport:
    """Gather every finding about the source `name`; a source that can't be reached is a finding too.

    Raises ConfigError if the configuration has no such source.
    """
    source = config.source(name)
    try:
        with connect(source.dsn, "lakeproof check") as conn:
            return _report(config, source, conn)
    except LakeproofError as refusal:
        return _unreached(name, refusal)


def check_sources(config: Config, names: Iterable[str], timeout_s: float = TIMEOUT_S) -> dict[str, CheckReport]:
    """Call `check_source` for several sources at once: a server that hangs is a finding about its own source."""
    results = run_concurrently(names, lambda name: check_source(config, name), timeout_s)
    reports = {}
    for name, report in results.items():
        if isinstance(report, LakeproofError):
            reports[name] = _unreached(name, report)
        elif isinstance(report, Exception):
            raise report
        else:
            reports[name] = report
    return reports


def spread_findings(config: Config, reports: Mapping[str, CheckReport]) -> dict[str, Finding]:
    """Return a note for each group all of whose sources were reached."""
    findings = {}
    for group, sources in config.groups.items():
        if all(source in reports and reports[source].server is not None for source in sources):
            findings[group] = spread(group, {s: {t.name: t.changes for t in reports[s].tables} for s in sources})
    return findings


def _unreached(name: str, error: LakeproofError) -> CheckReport:
    return CheckReport(name, None, None, (), (), (from_error(error),))


def _report(config: Config, source: SourceConfig, conn: Connection) -> CheckReport:
    state = SourceState.of(config, source.name)
    seen = see_server(conn, state)
    candidates = read_candidates(conn, source)
    return CheckReport(
        source=source.name,
        server=seen.server,
        slot=seen.slot,
        publications=tuple(publications_of(conn, source)),
        tables=_tables(conn, source, candidates),
        findings=(
            *examine(
                conn,
                source,
                paused=_of_lake(lambda: state.paused),
                in_lake=_of_lake(lambda: () if state.cut is None else {*state.cut.tables, *state.cut.held}),
            ),
            *candidates.findings,
            *lake_findings(state, seen),
        ),
    )


def _of_lake(read: Callable[[], Collection[TableName]]) -> Collection[TableName]:
    """Return tables that a lake names; a lake that can't be read is a finding of its own."""
    try:
        return read()
    except (LakeError, StoreRefusesError, ConfigError):
        return ()


def _tables(conn: Connection, source: SourceConfig, candidates: Candidates) -> tuple[TableSummary, ...]:
    try:
        listed = candidates.tables or read_tables(conn, source, refused={}).values()
        published = with_sizes(conn, listed)
        changes = changes_of(conn, published)
        return tuple(_summary(table, changes[table.table]) for table in published)
    except DefiniteError:
        # The findings say why.
        return ()


def _summary(table: PublishedTable, changes: int) -> TableSummary:
    version = table.version
    return TableSummary(
        name=table.table,
        identity=version.identity.name.lower(),
        key=version.key,
        columns=len(version.columns),
        exact_text_columns=tuple(column.name for column in version.columns if column.kind == "exact_text"),
        actions=tuple(action for action in ("insert", "update", "delete", "truncate") if action in table.actions),
        pages=sum(leaf.pages + leaf.toast_pages for leaf in table.leaves),
        kept=table.kept,
        left_out=table.left_out,
        changes=changes,
        row_filter=table.row_filter,
    )


def lake_findings(state: SourceState, seen: ServerSeen) -> list[Finding]:
    """Return the findings about a source's lake and its server; one is that something can't be read."""
    try:
        check_lake_is_ours(state.lake, seen.server)
        refuse_stuck(state.chain, seen.slot)
        return [*_slot(state, seen), *_absent(state)]
    except (LakeError, StoreRefusesError, ConfigError) as refusal:
        return [from_error(refusal)]


def _slot(state: SourceState, seen: ServerSeen) -> Iterator[Finding]:
    """Yield what makes the slot no continuation of the landing; of a lost one the server has been asked already."""
    source = state.source
    if name_problem(source.slot) is not None or (seen.slot is not None and seen.slot.lost):
        return
    if state.chain is None:
        if seen.slot is None:
            yield note(f"slot {source.slot}", "it does not exist yet", "`lakeproof bootstrap` makes it")
        return
    gap = slot_gap(source, seen, state.chain)
    if gap is not None:
        yield error(gap.thing, gap.reason, gap.remedy)


def _absent(state: SourceState) -> Iterator[Finding]:
    for table, why in absence(state).tables.items():
        finding = note if why.is_excluded else error
        yield finding(table, why.reason, why.remedy)
