"""What a check found out: a thing, the reason and the remedy, with a severity.

Finding things belongs to `checks.py` and `table_checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from lakeproof.errors import LakeproofError, SourceError, TableError, TransientError
from lakeproof.names import TableName


class Severity(Enum):
    """`ERROR` stops the pipeline, `WARNING` may do so later or surprise a reader, `NOTE` is good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found; `table` is set where it is about one table alone."""

    severity: Severity
    thing: str
    reason: str
    remedy: str
    table: TableName | None = None
    # An error that may be none when it is looked at again: the server can't be reached, a lock was not to be had.
    transient: bool = False

    def __str__(self) -> str:
        return f"{self.thing}: {self.reason}; {self.remedy}"


def error(thing: str, reason: str, remedy: str, table: TableName | None = None) -> Finding:
    """A finding that stops the pipeline."""
    return Finding(Severity.ERROR, thing, reason, remedy, table)


def warning(thing: str, reason: str, remedy: str, table: TableName | None = None) -> Finding:
    """A finding that lets it run."""
    return Finding(Severity.WARNING, thing, reason, remedy, table)


def note(thing: str, reason: str, remedy: str, table: TableName | None = None) -> Finding:
    """A finding that is no fault."""
    return Finding(Severity.NOTE, thing, reason, remedy, table)


def from_error(found: LakeproofError) -> Finding:
    """An error as a finding."""
    return replace(error(found.thing, found.reason, found.remedy), transient=isinstance(found, TransientError))


def refusals(findings: Iterable[Finding]) -> dict[TableName, TableError]:
    """The tables that can't go on, each with all that is wrong about it; raise as `refuse` where an error is about none."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if any(finding.table is None for finding in errors):
        refuse(errors)
    found: dict[TableName, TableError] = {}
    for finding in errors:
        if finding.table is not None and finding.table in found:
            first = found[finding.table]
            found[finding.table] = TableError(first.thing, first.reason, f"{first.remedy} | also {finding}")
        elif finding.table is not None:
            found[finding.table] = TableError(finding.thing, finding.reason, finding.remedy)
    return found


def refuse(findings: Iterable[Finding]) -> None:
    """Raise one SourceError that names every finding that is an error; do nothing where none is."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if not errors:
        return
    first, *others = errors
    also = "".join(f" | also {finding}" for finding in others)
    raise SourceError(first.thing, first.reason, first.remedy + also)
