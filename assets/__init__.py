"""Dagster assets and checks, one module per family: each reads resources, calls one command of the engine and reports.

Pipeline logic does not belong here (`lakeproof.commands`), and no job, sensor or schedule.

    postgres.py   the source tables, as external assets      slots.py        a slot's positions, and its health check
    bootstrap.py  snapshots: the first and every later copy  changes.py      the drain: changes landed
    current.py    compaction: history and current tables     maintenance.py  retention, archive, small files
    continuous.py the compaction's run that goes on          cycle_totals.py    sums of cycles, one event per interval
    views.py      SQL over current tables                    cycle_metadata.py  history and current after cycles
    daily.py      tables at the end of each day            external.py         tables outside of the lake that views read
    catalog.py    completes every spec: columns, lineage, comments, tags, owners
    checks/       proofs and expectations
    support/      what all families share: keys, specs, metadata, running the engine, logs and events
"""
