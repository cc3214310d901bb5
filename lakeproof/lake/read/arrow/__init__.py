"""Reading the lake in this process, without Spark: tables at cuts, changes between them, transactions.

Nothing here imports PySpark.

    open.py               opening the lake, at cuts and at the landing's end
    frames.py             tables and views at a cut, for Arrow and pandas, and never too many
    changes.py            changes between cuts
    transactions.py       what has landed, and what landed before that, from history
"""
