"""The findings of a check: a thing, the reason and the remedy, with a severity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from lakeproof.errors import LakeproofError, SourceError, TableError, TransientError
from lakeproof.names import TableName


class Severity(Enum):
    """`ERROR` stops the pipeline, `WARNING` may stop it later or surprise a reader, `NOTE` is good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `table` is set if it is about one table alone."""

    severity: Severity
    thing: str
    reason: str
    remedy: str
    table: TableName | None = None
    # An error that may be gone at the next check: the server can't be reached, a lock was not free in time.
    transient: bool = False
    about_slot: bool = False

    def __str__(self) -> str:
        return f"{self.thing}: {self.reason}; {self.remedy}"


def error(thing: str | TableName, reason: str, remedy: str) -> Finding:
    """Return a finding that stops the pipeline; a `thing` that is a table's name is about this table alone."""
    return _finding(Severity.ERROR, thing, reason, remedy)


def warning(thing: str | TableName, reason: str, remedy: str) -> Finding:
    """Return a finding that lets the pipeline run."""
    return _finding(Severity.WARNING, thing, reason, remedy)


def note(thing: str | TableName, reason: str, remedy: str) -> Finding:
    """Return a finding that is no fault."""
    return _finding(Severity.NOTE, thing, reason, remedy)


def _finding(severity: Severity, thing: str | TableName, reason: str, remedy: str) -> Finding:
    if isinstance(thing, TableName):
        return Finding(severity, f"table {thing}", reason, remedy, thing)
    return Finding(severity, thing, reason, remedy)


def from_error(failure: LakeproofError) -> Finding:
    """Return an error as a finding."""
    return replace(error(failure.thing, failure.reason, failure.remedy), transient=isinstance(failure, TransientError))


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def refused_tables(findings: Iterable[Finding]) -> dict[TableName, TableError]:
    """Return the refused tables, each with all its errors; raise as `refuse` if an error is about no single table."""
    errors = errors_of(findings)
    if any(finding.table is None for finding in errors):
        refuse(errors)
    refused: dict[TableName, TableError] = {}
    for finding in errors:
        if finding.table is not None and finding.table in refused:
            first = refused[finding.table]
            refused[finding.table] = TableError(first.thing, first.reason, f"{first.remedy} | also {finding}")
        elif finding.table is not None:
            refused[finding.table] = TableError(finding.thing, finding.reason, finding.remedy)
    return refused


def refuse(findings: Iterable[Finding]) -> None:
    """Raise one SourceError that names every finding that is an error; do nothing if none is."""
    errors = errors_of(findings)
    if not errors:
        return
    first, *others = errors
    also = "".join(f" | also {finding}" for finding in others)
    raise SourceError(first.thing, first.reason, first.remedy + also)
