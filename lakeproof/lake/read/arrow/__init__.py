"""Reading the lake in this process, without Spark: tables at cuts, changes between them, transactions.

Nothing here imports PySpark.
"""
