"""Decisions of sensors and schedules as pure functions: no instance, server, lake or clock is touched here.

Observations come in as plain values, and a decision goes out; `orchestration.sensors` and `orchestration.schedules`
do both. An instance, a connection or a Dagster object does not belong here.

    drain.py       starts a source's drain, from its slot and its runs; defines Run and Phase for all policies
    follow.py      starts a continuous compaction, from the lake's locks and its runs
    run.py         keeps a new run away while another run of the job is in progress; finds dead runs
    copy.py        copies held and new tables without being asked
    alert.py       which messages about problems are sent now
    slot_check.py  reports a slot's health when it has changed
"""
