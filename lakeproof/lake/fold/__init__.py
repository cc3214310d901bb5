"""Many changes to one: what a range of changes, or rows of history, add up to.

Reading landing rows belongs to `lakeproof.lake.rows`; committing the result to `lakeproof.lake.delta`, which this does not
know.

    key_fold.py           a range added up from its rows' keys, in Arrow, and its rows
    holders.py            values that updates left out, in Arrow: the rows that have them, named or filled in
    net_change.py         the result for a range, by Spark
    toast.py              holders of unchanged large values, by Spark
    unchanged_values.py   history's large values, filled in
    history.py            history's rows, and a table's rows after a change, or after its history
"""
