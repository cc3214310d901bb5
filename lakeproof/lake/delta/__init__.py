"""Delta Lake: tables, their logs and files, and the one commit that each table gets in a cycle.

Computing the rows belongs to `lakeproof.lake.fold`, which this does not know; the order of commits to
`lakeproof.lake.cycle`.

    committer.py    what changes becomes one version
    link_commit.py  a commit of this process
    apply.py        a commit of what Spark computed
    schema.py       a change of columns
    log/            commits, states, checkpoints, protocol
    files/          data files and deletion vectors
    search.py       rows by their keys: their places, and the rows before a range
    arrow_rows.py   the rows of a version, without Spark
    versions.py     tables at the version of a cut, and rows that came and went, for Spark
    day_table.py    a table's rows at the end of each day
"""
