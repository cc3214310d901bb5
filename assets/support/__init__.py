"""Code that all asset families share, between Dagster's interfaces and the engine's values.

An asset or a check does not belong here, nor anything that only one family needs.

    keys.py          keys, groups and specs of assets   metadata.py      engine values as metadata
    engine_call.py   runs an engine call, or a command of lakeproof, so that it can be ended
    event_log.py     engine events in a run's log       pace.py          how old events may be, and how many are written
    columns.py       columns and their origins          view_lineage.py  the same of a view, by its SQL
    step.py          one step that makes many assets
"""
