"""The lake's documents: as values, as bytes, and in the store. No Spark.

The time of writing a document is decided elsewhere: `lakeproof.lake.cycle` and `lakeproof.views` decide that.

    documents.py        intents, cuts and a cut's entries as values; an intent is also a document
    held.py             why a table is held and what brings it back; the one place that makes sentences of it
    cuts/               cuts of sources and groups, stored and chosen
    views/              documents of views
    store.py            the newest intent and cut, also followed, a cut at a position or a time, and writing the next
    lease.py            who may write to a source's lake tables now; ends a JVM that outlives its process
    ages.py             up to which ordinal all rows were in the lake at a time
    days.py             the days that a table's Delta table of days has
    described.py        comments and types, for people
"""
