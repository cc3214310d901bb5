"""One cycle, from its plan to its cut.

Planning is in `lakeproof.lake.planning`, adding up a row's changes in `lakeproof.lake.fold`, committing to Delta in
`lakeproof.lake.delta`.

    steps.py                  the five steps of every cycle: intent, tables, durable, cut, consumed
    runner.py                 cycle after cycle; an interrupted one is finished first
    apply_cycle.py            step 2 with changes, snapshots or schema changes
    maintenance.py            step 2 without changes: small files, old history, current made from history
    task.py                   one table's task in a cycle, its outcomes, and what every way of writing it takes
    table.py                  writes one table, and a range in this process: files linked, other rows in new files
    linked_entry.py           a table's first rows: the snapshot's files linked into both tables
    snapshot_entry.py         the correction that a snapshot's entry needs
    keyed_entry.py            the rows of single keys, which a repair has read
    table_by_spark.py         what Spark writes of a table
    commits_by_spark.py       its commits: to history, to current, and both of a correction
    schema_change_commits.py  the commits that give a table another schema
    schema_history.py         what changed in tables' schemas, as a Delta table and documents
    attempts.py               how often a table was tried, so that a cycle ends
    foreign_commits.py        commits of others to a table: held, or taken back
    broken_log.py             going on after a log, or a file of history, that can't be read
    table_files.py            small, unneeded and unreadable files
"""
