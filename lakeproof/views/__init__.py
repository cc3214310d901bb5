"""Views: SQL over current tables, kept as Delta tables that are corrected to the query's answer.

Choosing and ordering views belongs to `lakeproof.commands.refresh`.

    definition.py  a view's SQL, bound and checked   query_rules.py  what the SQL may contain
    refresh.py     one view brought up to its cuts   audit.py        a view against its query
    cycle.py       from a view's log to its cut      optimize.py     a view's files and cuts
    open.py        several views at one point        maintain.py     the views of a source, maintained
    read_at.py     the point that a view is read at  external.py     tables outside of the lake
    drift.py       what calls for a whole computation   replace.py        another definition, staged
    since_cut.py   what changed since a view's cut     table_changes.py  ... read once
    strategies.py  corrections computed from that      cost.py            ... if it is worth it
    linear_terms.py  the query over the changes        added_sums.py      counts and sums, added
    touched_keys.py  the query over touched keys       held_rows.py       rows that this process holds
    carried_keys.py  what a plan can be restricted by  sum_plans.py       the groups of a plan
    applied.py     views as applied, in order        refresh_point.py  what one refresh reads, at one point
    plan_trees.py    walks Spark's plans
"""
