"""Code that all asset families share, between Dagster's interfaces and the engine's values.

An asset or a check does not belong here, nor anything that only one family needs; `snapshot_progress` and `throttle`
are here because they know nothing about their asset's definition.

    keys.py         asset keys and groups            specs.py              what the specs of lake tables have in common
    metadata.py     engine values as metadata        engine_call.py        runs an engine call so that it can be ended
    event_log.py    engine events in a run's log     snapshot_progress.py  a snapshot's progress as observations
    columns.py       columns and their origins       view_lineage.py       the same of a view, by its SQL
    places.py        places in a lake as URIs
    freshness.py     ages that are too old, and events of tables without changes
    quiet_tables.py  events of a drain's tables without changes
    event_budget.py the events that a run may write
    throttle.py     one event per table and interval out of many flushes
    command_call.py runs a command of lakeproof, wherever its Spark work is done
"""
