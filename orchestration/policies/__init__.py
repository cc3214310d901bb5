"""Decisions of sensors and schedules as pure functions: no instance, server, lake or clock is touched here.

Observations come in as plain values, and a decision goes out; `orchestration.sensors` and `orchestration.schedules`
do both. An instance, a connection or a Dagster object does not belong here.

    run.py         a run, and what shows that it lives; keeps a new run away while another one of the job is in progress
    lasting.py     starts a drain, or a continuous compaction, if none is at work
    copy.py        copies held and new tables without being asked
    alert.py       which messages about problems are sent now
    slot_check.py  reports a slot's health when it has changed
"""
