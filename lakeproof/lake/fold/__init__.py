"""Many changes to one: what a range of changes, or rows of history, add up to.

Reading landing rows belongs to `lakeproof.lake.rows`; committing the result to `lakeproof.lake.delta`, which this does not
know.

    table_range.py        a table's files of a range, and which of the two ways adds them up
    net_change.py         the result for a range, by Spark
    in_memory.py          the same for a range that fits into memory, as relations of Spark
    small_range.py        its rows, and what they add up to, in Arrow alone
    key_fold.py           a range added up from its key columns alone, in Arrow
    holders.py            the rows that have the values which updates left out, in Arrow
    unchanged_rows.py     rows with these values named, or filled in
    toast.py              holders of unchanged large values
    unchanged_values.py   history's large values, filled in
    lineage.py            the row to which each change belongs
    bags.py               tables without a key
    history.py            history's rows
    replay.py             a table from its history
    table_state.py        a table's rows after a change
"""
