"""Reading the lake, for users: tables at cuts and between them, and the changes from cut to cut.

Nothing is written here; writing belongs to `lakeproof.lake.cycle`.

    open.py      tables at a cut            as_of.py      tables at any position or time
    changes.py   changes between cuts       subscribe.py  the same as a stream
    register.py  SQL views of a cut
"""
