"""Planning: what the next cycle does, from manifests and documents alone. No Spark, no row, nothing is written but marks.

Carrying a plan out does not belong here; `lakeproof.lake.cycle` does that.

    plan.py              the next cycle: its range, the tables it writes or holds, the snapshots that enter
    landing/             what of the landing a cycle takes
    group_position.py    the position that all sources of a group can be brought to
    next_incarnation.py  the cycle that switches the lake to the source's next incarnation
    schema_change.py     two schemas of a table compared, and whether a change can be made in place
    schema_changes.py    the schema changes that the stream or the catalog's records bring: in place, held, or waiting
    entries.py           finished snapshots, tables that enter without one, and how many enter in one cycle
    catalog_drift.py     from which position a table is suspect, by the catalog's records
    forecast.py          the plan of the next compaction, and the tables that it will hold
    set_aside.py         the held tables that nobody waits for
"""
