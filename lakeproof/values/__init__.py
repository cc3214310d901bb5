"""PostgreSQL values: the type that each has in the lake, and the one caster from PostgreSQL's text to it.

The protocol's bytes are `lakeproof.pgoutput`, and a value's exact form in Spark is `lakeproof.lake.rows.exact`; neither
belongs here. In Arrow it is here.

    types.py          the one table of kinds            exact_kinds.py    what a kind means for keys
    cast.py           text to value, exactly            arrays.py         splits texts of arrays
    spans.py          the usual texts, compiled         compiled.py       compiles a loop
    parse_numbers.py  booleans, integers, decimals      parse_texts.py    strings, bytes, validity
    parse_times.py    dates and timestamps              xxhash.py         Spark's hash of values
    exact_texts.py    exact forms of typed values     md5.py            the digests of rows
    loading.py        the error of a loop that can't be loaded
    pinned_settings.py   how PostgreSQL prints the texts
    commit_times.py   times that a calendar holds or not
"""
