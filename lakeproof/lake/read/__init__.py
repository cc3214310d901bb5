"""Reading the lake, for users: tables at cuts and between them, and the changes from cut to cut.

Nothing is written here; writing belongs to `lakeproof.lake.cycle`.

    open.py      opening with Spark         in_process.py      opening without Spark, at cuts and at the landing's end
    opened.py    tables at cuts             frames.py          ... for Arrow and pandas
    landed.py    tables at the landing's end
    as_of.py     tables at any position     register.py        SQL views of a cut
    changes.py   changes between cuts       read_changes.py    ... without Spark
    view_changes.py                         ... of a view
    subscribe.py the same as a stream       landing_stream.py  a stream of what lands
    days.py      tables at the end of days  transactions.py    what has landed, without Spark
                                            past_transactions.py  ... before that, from history
"""
