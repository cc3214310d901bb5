"""Many changes to one: what a range of changes, or rows of history, add up to.

Reading landing rows belongs to `lakeproof.lake.rows`; committing the result to `lakeproof.lake.delta`, which this does not
know.

    table_range.py        a table's files of a range, and which of the two ways adds them up
    net_change.py         the result for a range, by Spark
    in_memory.py          the same for a range that fits into memory, as relations of Spark
    small_range.py        its rows, and what they add up to, in Arrow alone
    key_fold.py           the same from the key columns alone, for files that are linked
    toast.py              holders of unchanged large values
    in_memory_toast.py    the same, in memory
    unchanged_values.py   history's large values, filled in
    lineage.py            the row to which each change belongs
    bags.py               tables without a key
    history.py            history's rows
    replay.py             a table from its history
    table_state.py        a table's rows after a change
"""
