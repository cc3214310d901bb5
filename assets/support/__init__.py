"""Code that all asset families share, between Dagster's interfaces and the engine's values.

An asset or a check does not belong here, nor anything that only one family needs.

    keys.py          keys, groups and specs of assets   metadata.py      engine values as metadata
    command_call.py  runs a command of lakeproof, wherever its Spark work is done
    engine_call.py   runs an engine call so that it can be ended
    event_log.py     engine events in a run's log       pace.py          how old events may be, and how many are written
    first_events.py  events that a drain's start lacks
    columns.py       columns and their origins          view_lineage.py  the same of a view, by its SQL
"""
