"""Benchmarks of the whole pipeline.

whole.py          catch-up and reading
fresh_reads.py    reads at the landing's end
continuous.py     freshness, kept by Dagster's sensors
freshness.py      commit to cut
load.py           the pipeline beside a heavy load
load.sql          the load's tables and transactions
load_workload.py  runs them with pgbench
load_pipeline.py  drain and compaction as processes
load_samples.py   reads slot, landing and CPU
tenants.py        many tables, in a schema for each tenant
spark_start.py    a session's start, with the archive of classes and without
many_assets.py    a location of many tables, and ticks
stress.py         peak memory of the whole pipeline
"""
