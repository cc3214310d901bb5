"""The lake: what has landed becomes Delta tables, cycle after cycle, and is read at cuts.

Commands are in `lakeproof.commands`. Nothing here talks to PostgreSQL: the lake knows the source by what has landed.
FORMAT.md has every document and hidden column.

    records/    intents, cuts, leases: the documents, and the store they are in. No Spark
    planning/   what the next cycle does, from manifests and documents alone. No Spark
    spark/      the session, its settings and failures
    rows/       frames and columns: landed rows, exact forms, checks
    fold/       many changes of a row resolved to one
    delta/      everything that knows Delta's log
    cycle/      one cycle, from its plan to its cut
    read/       what users call: tables at a cut, at a time, and the changes between cuts
    columns.py  the columns of history and current
    spark_on_demand.py  a session that starts when the first table needs one

Each room imports only from rooms below it:

    cycle | read
    fold | delta
    rows
    spark | planning
    records
    columns
"""
