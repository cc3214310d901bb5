"""Cycles and steps that bring no changes: files, retention, rebuilt tables, and logs that somebody else wrote or broke.

`lakeproof.commands.maintain` decides when they are due.

    maintenance.py           step 2 without changes: small files, old history, current made from history
    maintenance_by_spark.py  what Spark does of that, and where retention begins
    logs.py                  logs, and files of history, that somebody else wrote or broke: held, taken back, gone on after
    table_files.py           small, unneeded and unreadable files
"""
