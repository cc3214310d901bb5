"""Views: SQL over current tables, kept as Delta tables that are corrected to the query's answer.

Choosing and ordering views belongs to `lakeproof.commands.refresh`.

    definition.py  a view's SQL, bound and checked   query_rules.py  what the SQL may contain
    refresh.py     one view brought up to its cuts   audit.py        a view against its query
    cycle.py       from a view's log to its cut      optimize.py     a view's files and cuts
    open.py        several views at one point        maintain.py     the views of a source, maintained
    since_cut.py   what changed since a view's cut     strategies.py   corrections computed from that
    carried_keys.py  what a plan can be restricted by   plan_trees.py   walks Spark's plans
"""
