"""Cycles and steps that bring no changes: files, retention, rebuilt tables, and logs that somebody else wrote or broke.

`lakeproof.commands.maintain` decides when they are due.

    maintenance.py           step 2 without changes: small files, old history, current made from history
    maintenance_by_spark.py  what Spark does of that
    history_firsts.py        where retention begins
    foreign_commits.py       commits of others to a table: held, or taken back
    broken_log.py            going on after a log, or a file of history, that can't be read
    table_files.py           small, unneeded and unreadable files
"""
