"""Dagster assets and checks, one module per family: each reads resources, calls one command of the engine and reports.

Pipeline logic does not belong here (`lakeproof.commands`), and no job, sensor or schedule.

    outside.py    tables of PostgreSQL, and others that views read, as external assets
    slots.py      a slot's positions, its health check, and the check that the lake is whole
    bootstrap.py  snapshots: the first and every later copy  changes.py      the drain: changes landed
    current.py    compaction: history and current tables     maintenance.py  retention, archive, small files
    cycles.py     the events of both after cycles            daily.py        tables at the end of each day
    views.py      SQL over current tables
    catalog.py    every spec: columns, lineage, comments, tags, owners
    checks/       proofs and expectations
    support/      what all families share: keys, specs, metadata, running the engine, logs and events
"""
