"""A view's correction from what its tables have changed: which changes can be used, and what follows from them.

The commit of a correction does not belong here, nor the computation as a whole (`lakeproof.views.refresh`).

    strategies.py     chooses the way, and says why
    since_cut.py      what changed since a view's cut
    table_changes.py  those changes, read once
    linear_terms.py   the query over the changes
    added_sums.py     counts and sums, added
    touched_keys.py   the query over touched keys
    correction.py     the rows that go and come, as a value
    collected.py      rows that this process has collected
    carried_keys.py   what a plan can be restricted by
    sum_plans.py      the groups of a plan
    plan_trees.py     walks Spark's plans
"""
