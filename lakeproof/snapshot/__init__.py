"""The first copy of tables, and every later one, beside the drain: tables at one LSN into Parquet files.

Applying a finished copy to the lake does not belong here (`lakeproof.lake`), nor do connections and COPY itself
(`lakeproof.postgres`).

    run.py          one run, from the choice of tables to the report
    context.py      what all parts of a run share
    incarnation.py  record, slot and chain of a new incarnation
    attempts.py     several snapshots, for tables altered meanwhile
    copy/           the copy of a table, and of single keys
    folder.py       the documents of a folder, and the lock: one run per source
    paused.py       tables that are taken out
    state.py        a part as a value
    progress.py     events and a file for people, and the newest snapshot's state
"""

__all__ = ["copy", "folder", "incarnation", "paused", "progress", "run", "state"]
