"""The commands: what a person or Dagster calls, a file per command. Each takes a configuration and a source's name.

Parts that commands share are in the rooms below: a command reads the configuration, calls those rooms and
returns a report. Arguments and output are in `lakeproof.cli`.

    init.py            a first configuration, from what a database has
    check.py           what is wrong with a source            check_machine.py   what is wrong with this machine
    check_lake.py      what is wrong between a source and its lake
    publish.py         `plan` and `apply`: the publication    teardown.py        drops slot and publications
    bootstrap.py       copies tables at one position          describe.py        comments and types, for catalogs
    drain.py           from the slot into the landing         recover.py         a new incarnation after a gap
    compact.py         from the landing into the lake         compact_group.py   the same for a group's sources
    follow.py          compaction that goes on and on         follow_views.py    views refreshed beside it
    follow_proofs.py   proofs of changes beside it            pending_work.py    whether compact or refresh has work
    maintain.py        retention, small files, repairs        sizes.py           how much room a lake takes
    refresh.py         computes views                         daily.py           tables at the end of days
    prove.py           compares the source with the lake      prove_tables.py    the comparison of its tables
    prove_changed.py   compares what has changed              prove_repair.py    reads rows that differ again
    prove_lake.py      proves histories and audits views      status.py          how everything stands
    concurrently.py    sources or tables, a few at once       sql_catalog.py     names in a SQL catalog
"""
