"""The one read model: the state of a source, its lake and its views, and what the lake lacks. Nothing is written; no Spark.

Everybody who shows or judges a state reads it here: `status`, `check` and `plan`, metrics, Dagster's sensors and checks.
Commands, sensors and pages draw conclusions from a state and show it.

    source_state.py   a source's documents, each read once, with its own error
    problem.py        what could not be read, or is wrong      status.py        all sources, views and groups
    source.py         one source, for people                   slot.py          the slot, as the server has it
    shortfall.py      what the lake lacks                      absent.py        published tables that are in no lake
    compared.py       tables by their last proofs
    due.py            days that are missing, proofs that are due
    due_copies.py     copies that are due, and those that are not
    views.py          views: behind, or overwritten            due_work.py      whether compact or refresh has work
    known_tables.py   a source's tables without its database   machine.py       what is wrong with this machine
"""

__all__ = [
    "absent",
    "compared",
    "due",
    "due_copies",
    "due_work",
    "known_tables",
    "machine",
    "problem",
    "shortfall",
    "slot",
    "source",
    "source_state",
    "status",
    "views",
]
