"""A Delta table's data files and deletion vectors: written, linked, described, put together and removed.

No module here makes a version: the commit belongs to `lakeproof.lake.delta.committer`.

    data_files.py  files of a log, and their deleted rows
    links.py       files that no commit names yet
    statistics.py  statistics from a footer
    by_spark.py    rows that Spark writes
    optimize.py    small files compacted
    needed.py      the files that versions need, and making them durable
"""
