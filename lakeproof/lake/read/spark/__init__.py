"""Reading the lake by Spark: tables at cuts and positions, changes and streams of them.

Reading without Spark does not belong here (`lakeproof.lake.read.arrow`).

    open.py            opening the lake, at cuts and at the landing's end; SQL views of a cut
    as_of.py           tables at any position, and at the end of days
    changes.py         changes between cuts, of tables and views
    subscribe.py       changes, and what lands, as a stream
"""
