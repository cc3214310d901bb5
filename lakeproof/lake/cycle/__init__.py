"""One cycle, from its plan to its cut.

Planning is in `lakeproof.lake.planning`, adding up a row's changes in `lakeproof.lake.fold`, committing to Delta in
`lakeproof.lake.delta`.

    steps.py             the five steps of every cycle: intent, tables, durable, cut, consumed
    runner.py            cycle after cycle; an interrupted one is finished first
    apply_cycle.py       step 2 with changes, snapshots or schema changes
    upkeep/              step 2 without changes, and logs and files that somebody else wrote or broke
    task.py              one table's task in a cycle, its outcomes, and what every way of writing it takes
    here.py              what this process writes, and what it leaves to Spark
    table.py             writes one table in this process: files linked, other rows in new files
    table_again.py       a copy of a table that the lake has, compared in this process
    persisted.py         the rows that are compared with it, each with its place
    schemas/             tables that get another schema
    table_by_spark.py    what Spark writes of a table
    commits_by_spark.py  its commits: to history, to current, and both of a correction
    attempts.py          how often a table was tried, so that a cycle ends
    work_left.py         how much of a compaction is left
"""
