"""Views: SQL over current tables, kept as Delta tables that are corrected to the query's answer.

Choosing and ordering views belongs to `lakeproof.commands.refresh`.

    definition.py  a view's SQL, bound and checked   query_rules.py  what the SQL may contain
    refresh.py     one view brought up to its cuts   audit.py        a view against its query
    difference.py  what a view's table lacks of its query's rows
    cycle.py       from a view's log to its cut      maintain.py     files and cuts of a source's views
    open.py        several views at one point        drift.py        what calls for a whole computation
    read_at.py     what one refresh of a view reads, and at which point
    replace.py     another definition, staged        applied.py      views as applied, in order
    refresh_point.py  what one refresh reads, at one point, and tables outside of the lake
    round.py       several views of one refresh
    incremental/   corrections computed from what has changed since a view's cut
"""
