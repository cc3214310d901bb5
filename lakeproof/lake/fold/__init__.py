"""Many changes to one: what a range of changes, or rows of history, add up to.

Reading landing rows belongs to `lakeproof.lake.rows`; committing the result to `lakeproof.lake.delta`, which this does not
know.

    key_fold.py           a range added up from its rows' keys, in Arrow
    counted_fold.py       the same of rows that are counted: bags, and configured keys
    folded_rows.py        its rows, read from the landed files
    table_range.py        a table's files of a range
    net_change.py         the result for a range, by Spark
    holders.py            the rows that have the values which updates left out, in Arrow
    unchanged_rows.py     rows with these values named, or filled in
    toast.py              holders of unchanged large values
    unchanged_values.py   history's large values, filled in
    lineage.py            the row to which each change belongs
    bags.py               tables without a key, by Spark
    history.py            history's rows
    replay.py             a table from its history
    table_state.py        a table's rows after a change
"""
