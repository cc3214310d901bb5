"""Benchmarks: lakeproof measured against the bare tools in the same run, as ratios.

A check of correctness does not belong here (`tests`), nor goals and their history (`docs/benchmarks.md`).

    run.py        all benchmarks of the documentation, one after the other

    drain.py      a drain, against pg_recvlogical        bootstrap.py       a first copy, against bare COPY and other tools
    latency.py    commit to durable segment              snapshot_peers.py  those other tools, in their own environment
    decoder.py    pgoutput to Arrow, by kind of column   tls.py             drain and copy over TLS
    bounds.py     peak memory of a drain                 stress.py          peak memory of the whole pipeline
    apply.py      one commit, against MERGE              cycle.py           one cycle, against MERGE
    many_tables.py  one cycle over many tables           schema change.py         schema changes
    many_assets.py  a location of many tables, and ticks
    history_sum.py  the checksum of history              unchanged.py       unchanged large values
    views.py      refreshes of views from changes
    proof.py      a proof, against a plain checksum      resnapshot.py      copying a table again
    lake.py       the pipeline as a whole                entry.py           a first copy and its entry into the lake
    entry_peers.py  other tools that do so, in their own environment
    load.py       the pipeline beside a heavy load       load.sql           the load's tables and transactions
    load_workload.py  runs them with pgbench             load_pipeline.py   drain and compaction as processes
    load_samples.py   reads slot, landing and CPU        continuous.py      freshness, kept by Dagster's sensors

    object_store.py  a drain to an object store, beside a folder
    object_server.py  such a store, with a delay for each request

    freshness.py  commit to cut                          processes.py       CPU and memory of processes, bytes of files
"""
