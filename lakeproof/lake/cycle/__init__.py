"""One cycle, from its plan to its cut.

Planning is in `lakeproof.lake.planning`, adding up a row's changes in `lakeproof.lake.fold`, committing to Delta in
`lakeproof.lake.delta`.

    steps.py                  the five steps of every cycle: intent, tables, durable, cut, consumed
    runner.py                 cycle after cycle; an interrupted one is finished first
    apply_cycle.py            step 2 with changes, snapshots or schema changes
    maintenance.py            step 2 without changes: small files, old history, current made from history
    task.py                   one table's task in a cycle, and its result
    table.py                  writes one table: changes, first rows, or a correction
    table_parts.py            what every way of writing a table takes
    linked_entry.py           a table's first rows: the snapshot's files linked into both tables
    linked_range.py           a range, by this process: files linked into both tables, other rows in new files
    snapshot_entry.py         the correction that a snapshot's entry needs
    keyed_entry.py            the rows of single keys, which a repair has read
    correction_commits.py     the two commits of a correction
    history_commit.py         the commit to history
    current_commit.py         the commit to current
    schema_change_commits.py  the commits that give a table another schema
    schema_history.py         what changed in tables' schemas, as a Delta table and documents
    attempts.py               how often a table was tried, so that a cycle ends
    foreign_commits.py        commits of others to a table: held, or taken back
    broken_log.py             going on after a log that can't be read
    portable.py               names that a portable table can't have
    lost_history.py           a history of which a file can't be read
    table_files.py            small, unneeded and unreadable files
    day_files.py              unneeded files of tables of days
"""
