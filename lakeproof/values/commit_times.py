"""Times of commits: dates that a calendar holds (the years 1 to 9999), and bare numbers outside of it.

A source that is itself a subscriber commits with the time that its upstream gave, whatever that is: a year BC, one after
9999, an infinity. So nothing is ordered by a commit time or refused for it: a row has the time, or if no calendar holds it
PostgreSQL's exact number. Reading messages does not belong here, nor columns (`lakeproof.pgoutput`).

Times are whole microseconds since 1970, without a limit; a number is PostgreSQL's: microseconds since 2000, in 64 bits, of
which the greatest is `infinity` and the least `-infinity`.

A time counts, in a manifest and so in a cut, in days and for a time that somebody asks for, as follows: one of a calendar is
itself, and one before the year 1 none at all. But nothing is committed after it has landed: if a clock is so far ahead that
it says so (`AHEAD_US`, beyond what two clocks may differ by), the time of landing counts.
"""

from __future__ import annotations

# From 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
POSTGRES_EPOCH_US = 946_684_800_000_000
# 0001-01-01 00:00:00 and the last microsecond of 9999, UTC.
EARLIEST_US = -62_135_596_800_000_000
LATEST_US = 253_402_300_799_999_999
AHEAD_US = 86_400_000_000


def is_of_calendar(time_us: int) -> bool:
    """True if a time has a year from 1 to 9999."""
    return EARLIEST_US <= time_us <= LATEST_US


def number_of(time_us: int) -> int:
    """Return PostgreSQL's number of a time."""
    return time_us - POSTGRES_EPOCH_US


def of_number(number: int) -> int:
    """Return the time of PostgreSQL's number."""
    return number + POSTGRES_EPOCH_US


def counts_as(time_us: int, landed_us: int) -> int | None:
    """Return the time as which a commit counts that landed at `landed_us`; None if that is before the year 1."""
    if time_us > landed_us + AHEAD_US:
        return landed_us
    return time_us if time_us >= EARLIEST_US else None
