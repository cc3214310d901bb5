"""Views: SQL over current tables, kept as Delta tables that are corrected to the query's answer.

Choosing and ordering views belongs to `lakeproof.commands.refresh`.

    definition.py  a view's SQL, bound and checked   query_rules.py  what the SQL may contain
    refresh.py     one view brought up to its cuts   audit.py        a view against its query
    optimize.py    a view's files and cuts           maintain.py     the views of a source, maintained
    open.py        reading several views at one point
"""
