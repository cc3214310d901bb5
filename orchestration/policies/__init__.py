"""Decisions of sensors and schedules as pure functions: no instance, server, lake or clock is touched here.

Observations come in as plain values, and a decision goes out; `orchestration.sensors` and `orchestration.schedules`
do both. An instance, a connection or a Dagster object does not belong here. ARCHITECTURE.md has the files.
"""
