"""The one read model: the state of a source, its lake and its views, and what the lake lacks. Nothing is written; no Spark.

Everybody who shows or judges a state reads it here: `status`, `check` and `plan`, metrics, Dagster's sensors and checks.
What follows from a state does not belong here, nor does how it is shown.

    source_state.py   a source's documents, each read once, with its own error
    shortfall.py      what the lake lacks, in one value   absent.py      published tables that are in no lake
    unproved.py       tables never proved, or differing   days.py        days of `daily` that are missing
    slot.py           the slot, as the server has it      source.py      all of this of one source, for people
    views.py          views: behind, or overwritten       views_behind.py   what views read has gone on
    groups.py         cuts of groups                      readers.py     what each table's readers must know
    problem.py        what could not be read              known_tables.py    a source's tables without its database
    due_copies.py     copies that are due without being asked   already_copied.py   those that a run need not repeat
    status.py         all sources, views and groups
    findings.py       what is wrong between source and lake  due_work.py     whether compact or refresh has work
    machine.py        what is wrong with this machine
"""
