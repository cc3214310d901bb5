"""Expectations of tables, as the configuration has them, and their evaluation by Great Expectations.

Choosing tables and opening them belongs to `lakeproof.commands.expect`.

    configured.py   entries as values, each with a name    evaluate.py   asks Great Expectations, and shows what may be shown
    in_pandas.py    a table's rows without Spark, if the verdict is the same
"""
