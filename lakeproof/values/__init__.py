"""PostgreSQL values: the type that each has in the lake, and the one caster from PostgreSQL's text to it.

The protocol's bytes are `lakeproof.pgoutput`, and a value's exact form in Spark is `lakeproof.lake.rows.columns`; neither
belongs here. In Arrow it is here.

    types.py            the one table of kinds
    exact_kinds.py      what a kind means for keys
    catalog_kinds.py    kinds of types that a database makes
    cast.py             text to value, exactly
    parse/              the usual texts, compiled
    exact_texts.py      exact forms of typed values
    forms_in_arrow.py   texts and values of kinds, in Arrow
    decimal_texts.py    digits of decimals, compiled
    spark_sql.py        texts of kinds, in Spark's SQL
    md5.py              the digests of rows
    xxhash.py           Spark's hash of values
    compiled.py         compiles a loop, and arrays for it
    loading.py          the error of a loop that can't be loaded
    pinned_settings.py  how PostgreSQL prints the texts
    commit_times.py     times that a calendar holds or not
"""
