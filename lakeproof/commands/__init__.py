"""The commands: what a person or Dagster calls, a file for each, or for a few of one purpose. None imports another.

Each takes a configuration and a source's name, makes one call of the rooms below, and returns a report. Work does not
belong here, nor do arguments and output (`lakeproof.cli`).

    init.py        a first configuration, from what a database has
    check.py       what is wrong with a source            publish.py     plan and apply, pause and resume
    bootstrap.py   copies tables at one position          drain.py       from the slot into the landing
    compact.py     from the landing into the lake: a source, a group, or either again and again
    maintain.py    retention, small files, repairs; the room that a lake takes
    refresh.py     computes views, and replaces them      daily.py       tables at the end of days
    prove.py       compares the source with the lake      expect.py      Great Expectations of current tables
    status.py      how everything stands                  recover.py     a new incarnation after a gap
    teardown.py    drops the slot, and publications of lakeproof's
"""

__all__ = [
    "bootstrap",
    "check",
    "compact",
    "daily",
    "drain",
    "expect",
    "init",
    "maintain",
    "prove",
    "publish",
    "recover",
    "refresh",
    "status",
    "teardown",
]
