"""The errors of lakeproof, sorted by what to do about them.

No message carries a row's value or a secret.

    LakeproofError
    ├── TransientError      try again: the network, a busy slot, a lock            exit status 3
    ├── DefiniteError       stop: a person must change something                   exit status 2
    │   ├── ConfigError     the configuration is wrong
    │   ├── SourceError     the PostgreSQL side refuses or has changed under us; StuckError: its stream ends at one place
    │   ├── GapError        the slot and the landing do not meet: changes are lost
    │   ├── LakeError       the lake belongs to someone else or is damaged; NoRoomError: its disk is full
    │   ├── StoreRefusesError  the lake's object store refuses what it is asked
    │   └── TableError      one table can't go on; the others can
    └── InvariantError      our own mistake: stop at once and report it             exit status 2
"""

from __future__ import annotations


def manual(_page: str, section: str) -> str:
    """Return the command that shows a section of the manual, which is on the page of that title."""
    return f"`lakeproof help {topic(section)}`"


def topic(heading: str) -> str:
    """Return the word that names a section of the manual: `the-slot-is-lost`."""
    words = "".join(c if c.isalnum() else " " for c in heading.replace("'", "").lower()).split()
    return "-".join(words)


# The remedy if slot and landing do not meet any more, or the landing can't be read on.
RECOVER = (
    f"run `lakeproof recover`, which begins or finishes a new incarnation ({manual('Running it', 'The slot is lost')})"
)
# The remedy if the server can't send the slot's stream any further, though the slot is alive.
ABANDON = (
    "run `lakeproof recover {source} --abandon-slot`, which drops the slot and begins a new incarnation with a copy of"
    f" every table ({manual('Running it', 'The stream is stuck')})"
)
# The remedy if a cycle can't end without a damaged file: `recover` keeps what landed, and so needs that file too.
BEGIN_AGAIN = (
    "begin the source's lake again: `lakeproof teardown`, keep the old lake folder for its history, then `lakeproof apply`"
    " and `lakeproof bootstrap` with a new one "
    f"({manual('Running it', 'A manifest, a segment or a document is damaged')})"
)


class LakeproofError(Exception):
    """The base of all errors: the thing, the reason and the remedy.

    `str()` is one line: `<thing>: <reason>; <remedy>`.
    """

    exit_status = 2

    def __init__(self, thing: str, reason: str, remedy: str) -> None:
        super().__init__(thing, reason, remedy)
        self.thing = thing
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.thing}: {self.reason}; {self.remedy}"


class TransientError(LakeproofError):
    """It may succeed when tried again; nothing has to be changed first."""

    exit_status = 3


class DefiniteError(LakeproofError):
    """It will not succeed until a person changes something."""


class ConfigError(DefiniteError):
    """The configuration is wrong."""


class SourceError(DefiniteError):
    """The PostgreSQL server, its role, publication, slot or tables refuse."""


class StuckError(SourceError):
    """The server fails at the same place of the slot's stream again and again, by an error of its own."""


class GapError(DefiniteError):
    """The slot and the landing do not meet (invariant no-gap)."""


class LakeError(DefiniteError):
    """The lake, a manifest, a segment or a cycle document is damaged or someone else's."""


class UnreadableRowsError(LakeError):
    """A file of a table, or one of its deletion vectors, that is missing or damaged; or a column that is not there."""


class NoRoomError(LakeError):
    """A disk is full. Nothing on it is damaged: a process that waits goes on once there is room."""


class StoreRefusesError(DefiniteError):
    """The object store refuses requests: credentials, a permission, the bucket, its region or the clock.

    It is no LakeError: nothing is damaged, so nothing may be held, begun again or called lost for its sake.
    """


class TableError(DefiniteError):
    """One table's data can't be applied; the other tables go on."""


class InvariantError(LakeproofError):
    """An invariant (ARCHITECTURE.md, what must hold) would be broken: our own mistake."""
