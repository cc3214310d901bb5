"""Reading the lake in this process, without Spark: tables at cuts, changes between them, transactions.

Nothing here imports PySpark.

    open.py               opening the lake, at cuts and at the landing's end
    changes.py            changes between cuts
    transactions.py       what has landed, and what landed before that, from history
"""
