"""The commands: what a person or Dagster calls, a file per command. Each takes a configuration and a source's name.

Parts that commands share do not belong here but in the rooms below: a command reads the configuration, calls those rooms and
returns a report. Arguments and output are in `lakeproof.cli`.

    init.py            a first configuration, from what a database has
    check.py           what is wrong with a source            check_machine.py   what is wrong with this machine
    check_lake.py      what is wrong between a source and its lake
    publish.py         `plan` and `apply`: the publication    teardown.py        drops slot and publications
    bootstrap.py       copies tables at one position          due_copies.py      which copies are due without being asked
    drain.py           from the slot into the landing         recover.py         a new incarnation after a gap
    compact.py         from the landing into the lake         compact_group.py   the same for a group's sources
    follow.py          compaction that goes on and on         follow_views.py    views refreshed beside it
    pending_work.py    whether compact or refresh has work
    maintain.py        retention, small files, repairs        sizes.py           how much room a lake takes
    refresh.py         computes views                         refresh_point.py   what one refresh reads, at one point
    applied_views.py   views as applied, in order
    prove.py           compares the source with the lake  prove_tables.py    the comparison of its tables
    prove_repair.py    reads rows that differ again
    prove_lake.py      proves histories and audits views      status.py          how everything stands
    concurrently.py    sources or tables, a few at once       known_tables.py    a source's tables without its database
    daily.py           tables at the end of days
    describe.py        comments and types, for catalogs
    sql_catalog.py     names in a SQL catalog
"""
