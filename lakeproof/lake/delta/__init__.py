"""Delta Lake: tables, their logs and files, and the one commit that each table gets in a cycle.

Computing the rows belongs to `lakeproof.lake.fold`, which this does not know; the order of commits to
`lakeproof.lake.cycle`.

    committer.py   what changes becomes one version    state.py            a version whole, kept between commits
    link_commit.py a commit of this process            checkpoint.py       ... in one file
    search.py      places of rows by their keys        vector_file.py      deleted rows, in a file
    base_rows.py   rows before a range, by their keys
    local_rows.py  rows that this process writes       spark_files.py      ... that Spark writes
    protocol.py    what a writer has to keep
    column_types.py types in the log's schema text     commit.py           the request and the result
    apply.py       a commit of what Spark computed     row_commit.py       what all commits of rows do
    spark_places.py places that Spark finds
    links.py       a landed file's second name         file_statistics.py  statistics from a footer
    schema.py      a change of columns                 optimize.py         small files compacted
    log.py         reading commits                     cleaned_log.py      ... without those that no cut names
    unnamed_commits.py  removing from a log
    files.py       the files that versions need        fsync.py            making files durable
    versions.py    tables at the version of a cut      log_restart.py     a log that begins again
    changed_places.py  rows that came and went         reader_features.py  what readers must know
    row_changes.py ... for Spark
    arrow_rows.py  the rows of a version, without Spark
    day_table.py   a table's rows at the end of each day
"""
