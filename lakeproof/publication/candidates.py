"""Checks the tables of a configuration before there is a publication, as they would be published.

So privileges, identities and types are named before anybody has changed anything. Tables that are published belong to
`lakeproof.postgres.checks.tables`, what `plan` makes of the configuration to `publish.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakeproof.config.model import SourceConfig
from lakeproof.errors import DefiniteError
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.catalog.selection import with_matches
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.checks.findings import Finding, from_error
from lakeproof.postgres.checks.tables import candidate_problem, findings_of, named_facts
from lakeproof.postgres.connections.connect import Connection
from lakeproof.publication.wishes import as_candidates, read_wishes


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tables that the first `apply` would publish, and the findings about them; none once there is a publication."""

    tables: Sequence[PublishedTable] = ()
    findings: Sequence[Finding] = field(default=())


def read_candidates(conn: Connection, configured: SourceConfig) -> Candidates:
    """Return the candidates of a source without a publication; raises TransientError if the connection is lost.

    Names that are no table's are findings of `table_findings`.
    """
    try:
        if publications_of(conn, configured):
            return Candidates()
        source = with_matches(conn, configured)
        facts = {t: f for t, f in named_facts(conn, source.tables).items() if not candidate_problem(t, f)}
        wishes = read_wishes(conn, source, facts, {}, only=False)
        # Those of a schema that is published whole are no wishes of their own.
        tables, refused = as_candidates(conn, wishes, facts)
        about = findings_of(conn, source, list(tables.values()), readable=True)
        return Candidates(tuple(tables.values()), (*wishes.mistakes, *refused, *about))
    except DefiniteError as refusal:
        return Candidates(findings=[from_error(refusal)])
