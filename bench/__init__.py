"""Benchmarks: lakeproof measured against the bare tools in the same run, as ratios.

A check of correctness does not belong here (`tests`), nor goals and their history (`docs/benchmarks.md`).

    run.py        all benchmarks, one after the other
    ingest/       from PostgreSQL to durable files: the drain and the copy
    lake/         from these files to the lake's tables and views
    pipeline/     all of it at once: freshness, load, many tables, memory
    proof/        proofs
    processes.py  CPU and memory of processes, bytes of files
"""
