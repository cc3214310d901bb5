"""Delta Lake: tables, their logs and files, and the one commit that each table gets in a cycle.

Computing the rows belongs to `lakeproof.lake.fold`, which this does not know; the order of commits to
`lakeproof.lake.cycle`.

    committer.py   what changes becomes one version    state.py            a version whole, kept between commits
    link_commit.py a commit of this process            checkpoint.py       ... in one file
    apply.py       ... of what Spark computed          spark_files.py      rows that Spark writes
    search.py      places of rows by their keys        data_files.py       files of a log, and their deleted rows
    base_rows.py   rows before a range, by their keys  links.py            files that no commit names yet
    protocol.py    what writers and readers must know
    schema.py      a change of columns                 optimize.py         small files compacted
    log.py         reading commits                     cleaned_log.py      ... without those that no cut names
    files.py       the files that versions need        fsync.py            making files durable
    versions.py    tables at the version of a cut      file_statistics.py  statistics from a footer
    changed_places.py  rows that came and went         row_changes.py      ... for Spark
    arrow_rows.py  the rows of a version, without Spark
    day_table.py   a table's rows at the end of each day
"""
