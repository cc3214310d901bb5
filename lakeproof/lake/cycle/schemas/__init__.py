"""Tables that get another schema in a cycle: their commits, their rows, and the record of the change.

Whether a change can be made in place is decided in `lakeproof.lake.planning`, not here.

    commits.py  the commits that give a table another schema
    rows.py     the rows of such a table, by Spark
    history.py  what changed in tables' schemas, as a Delta table and documents
"""
