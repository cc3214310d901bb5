"""Benchmarks of compaction, and of views.

entry.py          a first copy and its entry into the lake
entry_peers.py    other tools that do so, in their own environment
resnapshot.py     copying a table again
apply.py          one commit, against MERGE
cycle.py          one cycle, against MERGE
many_tables.py    one cycle over many tables
many_cycles.py    what thousands of small cycles leave
crossover.py      cycles in this process and by Spark, by their changed rows
schema_change.py  schema changes
wide_tables.py    a table of 1,590 columns
views.py          refreshes of views from changes
cluster.py        one compaction by executors of a cluster
"""
