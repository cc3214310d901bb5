"""Benchmarks: lakeproof measured against the bare tools in the same run, as ratios.

A check of correctness does not belong here (`tests`), nor goals and their history (`docs/benchmarks.md`).

    run.py               all benchmarks, one after the other

    drain.py             a drain, against pg_recvlogical
    latency.py           commit to durable segment
    decoder.py           pgoutput to Arrow, by kind of column
    bounds.py            peak memory of a drain
    tls.py               drain and copy over TLS
    object_store.py      a drain to an object store, beside a folder
    object_server.py     such a store, with a delay for each request
    bootstrap.py         a first copy, against bare COPY and other tools
    snapshot_peers.py    those tools, in their own environment
    entry.py             a first copy and its entry into the lake
    entry_peers.py       other tools that do so, in their own environment
    resnapshot.py        copying a table again
    apply.py             one commit, against MERGE
    cycle.py             one cycle, against MERGE
    many_tables.py       one cycle over many tables
    many_cycles.py       what thousands of small cycles leave
    crossover.py         cycles in this process and by Spark, by their changed rows
    schema_change.py     schema changes
    unchanged.py         unchanged large values
    wide_tables.py       a table of 1,590 columns
    lake.py              catch-up and reading
    fresh_reads.py       reads at the landing's end
    continuous.py        freshness, kept by Dagster's sensors
    freshness.py         commit to cut
    load.py              the pipeline beside a heavy load
    load.sql             the load's tables and transactions
    load_workload.py     runs them with pgbench
    load_pipeline.py     drain and compaction as processes
    load_samples.py      reads slot, landing and CPU
    tenants.py           many tables, in a schema for each tenant
    proof.py             a proof, against a plain checksum
    proof_of_changes.py  a proof of what changed
    proof_of_many.py     every command over 200 small tables
    views.py             refreshes of views from changes
    spark_start.py       a session's start, with the archive of classes and without
    many_assets.py       a location of many tables, and ticks
    stress.py            peak memory of the whole pipeline
    cluster.py           one compaction by executors of a cluster
    processes.py         CPU and memory of processes, bytes of files
"""
