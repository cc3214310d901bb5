"""Checks how the rows of published tables are identified: what the application's updates and deletes meet, and what comes.

PostgreSQL refuses an update or a delete of a table whose publication has it and whose rows it can't identify. A table that
somebody has named in a publication is refused then, since it can be taken out. One that its publication has with all others
can't: its rows are a bag of what was inserted since the last TRUNCATE, on both sides, so it is followed, and named once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from lakeproof.config.model import SourceConfig
from lakeproof.events import listed
from lakeproof.postgres.catalog.tables import PublicationWay, PublishedTable
from lakeproof.postgres.checks.findings import Finding, error, note, warning
from lakeproof.postgres.checks.privileges import as_identifier, qualified
from lakeproof.postgres.publications import out_of, way_in_words
from lakeproof.schema import Identity

_OWN_FAIL = "the application's own fail"


def identity_findings(table: PublishedTable, source: SourceConfig) -> Iterator[Finding]:
    """Yield the findings about a table's identity, without those that `only_inserted` makes of several tables."""
    config = source.table_config(table.table)
    risky = " and ".join(f"{action}s" for action in sorted(table.actions & {"update", "delete"}))
    if table.changes_refused and not table.only_inserted:
        reason = f"{risky} are published, but {_why_refused(table)}: {_OWN_FAIL}"
        yield error(table.table, reason, _remedy(table, source.name))
    if table.unsent_identity and risky:
        reason = (
            f"{risky} are published, but not its identity's generated columns {', '.join(table.unsent_identity)}, which"
            " PostgreSQL before 18 does not send: nothing says of which row they are"
        )
        remedy = f"ALTER TABLE {qualified(table.table)} REPLICA IDENTITY FULL, or USING INDEX without generated columns"
        yield error(table.table, reason, remedy)
    if table.keyed_leaves:
        yield _below_a_root(table, source.name, risky)
    if table.version.identity is Identity.FULL and not config.key:
        reason = "its identity is FULL: it is kept as a multiset of rows"
        yield note(table.table, reason, "name a `key` for it in the configuration if some columns identify its rows")
    if config.key and table.version.identity is not Identity.FULL:
        reason = "the configured key is not used: its identity is an index, whose columns are the key"
        yield warning(table.table, reason, "take `key` out of the configuration")


def only_inserted(tables: Iterable[PublishedTable], source: str) -> Iterator[Finding]:
    """Yield one finding for all tables that a publication has with others and whose updates and deletes are refused."""
    groups: dict[tuple[str, PublicationWay, bool], list[PublishedTable]] = defaultdict(list)
    for table in tables:
        for publication, way in table.ways.items() if table.only_inserted else ():
            groups[publication, way, bool(table.uncovered)].append(table)
    for (publication, way, generated), members in groups.items():
        followed = listed(f"{table.table} ({_why_refused(table)})" for table in members)
        reason = (
            f"{way_in_words(way, {t.table.schema for t in members})} and publishes updates and deletes, so {_OWN_FAIL} for"
            f" {followed}; each is followed as a bag of its inserts and truncates"
        )
        names = [table.table for table in members]
        remedy = _identified(generated=generated, publication=publication)
        remedy += f", or {out_of(publication, way, names, source)}"
        yield warning(f"publication {publication}", reason, remedy)


def sent_in_part(table: PublishedTable) -> Iterator[Finding]:
    """Yield the finding that the publications of a table leave operations out."""
    missing = [a for a in ("update", "delete", "truncate") if a not in table.actions]
    if missing == ["update", "delete"] and not table.has_identity:
        reason = "it has no identity and only its inserts are published: an UPDATE or DELETE on it would not be seen"
        remedy = "give it a primary key if rows change"
        if table.identified_leaves:
            remedy += ", or name its partitions in `tables` in its place: these have keys"
        yield note(table.table, reason, remedy)
    elif missing:
        reason = f"its publication leaves out {', '.join(missing)}: the lake will not follow these changes"
        yield warning(table.table, reason, "publish all of insert, update, delete, truncate")


def _below_a_root(table: PublishedTable, source: str, risky: str) -> Finding:
    """Return the finding that changes of partitions come under the name of a root that has no identity."""
    keyed = listed(leaf.table for leaf in table.keyed_leaves)
    reason = (
        f"{risky} are published, and it has no identity, while its partitions have ({keyed}):"
        " theirs come under its name, and nothing says of which row they are"
    )
    own = "publish its partitions under their own names: "
    if table.ways:
        options = "; ".join(
            f"ALTER PUBLICATION {as_identifier(name)} SET (publish_via_partition_root = false)" for name in table.ways
        )
        own += f"{options}, then copy them with `lakeproof bootstrap {source}`"
    else:
        own += "name these in `tables` in its place"
    remedy = f"give it the primary key of its partitions, or {own}"
    return error(table.table, reason, remedy)


def _why_refused(table: PublishedTable) -> str:
    """Return why PostgreSQL refuses the application's updates and deletes of the table."""
    identity = table.version.identity
    if table.column_list and identity is Identity.FULL:
        return "its identity is FULL, with which there can be no column list"
    if table.uncovered:
        return f"not its identity's columns {', '.join(table.uncovered)}"
    if not table.has_identity:
        reasons = {Identity.NOTHING: "its replica identity is NOTHING", Identity.INDEX: "its identity's index is gone"}
        return reasons.get(identity, "it has no primary key that can serve as one (none, or a deferrable one)")
    return f"its row filter reads {', '.join(table.filtered_beyond)}, which its identity does not have"


def _remedy(table: PublishedTable, source: str) -> str:
    """Return the remedy for a table that a publication has by name, or is about to have."""
    if table.column_list and table.version.identity is Identity.FULL:
        return "publish all of its columns without a list, or give it an identity of columns in the list"
    if table.uncovered and table.column_list:
        return "publish these columns too, or give it an identity of the columns that are published"
    if table.uncovered:
        first = next(iter(table.ways), None)
        return _identified(generated=True, publication=first)
    if table.has_identity:
        return (
            "filter by columns of its identity alone, or ALTER TABLE … REPLICA IDENTITY FULL (or USING INDEX with these"
            " columns in it), or publish its inserts only"
        )
    identify = _identified(generated=False, publication=None)
    if not table.ways:
        return identify
    out = "; ".join(
        out_of(name, way, [table.table], source) for name, way in table.ways.items() if way is PublicationWay.LINE
    )
    return f"{identify}; or take it out with {out} and run `lakeproof apply`, which publishes inserts only"


def _identified(*, generated: bool, publication: str | None) -> str:
    """Return what lets the server identify the rows of a table; `generated`: the identity has columns that are not sent."""
    if not generated:
        return "add a primary key or ALTER TABLE … REPLICA IDENTITY FULL"
    index = "ALTER TABLE … REPLICA IDENTITY USING INDEX without generated columns"
    if publication is None:
        return index
    return f"ALTER PUBLICATION {as_identifier(publication)} SET (publish_generated_columns = stored), or {index}"
