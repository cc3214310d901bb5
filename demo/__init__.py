"""The demonstration: an embedded PostgreSQL with a live workload, taken through the whole pipeline.

Nothing that a production deployment needs belongs here.

    run.py       everything around the pipeline: server, workload, drain, Dagster's UI
    steps.py     the pipeline, step by step              dagster_runs.py  runs the location's jobs in this process
    drain.py     one drain as a Dagster run              output.py        the printed lines and the table
    shop.py      the shop's schema and transactions      workload.py      runs them at a bounded rate
    server.py    an embedded PostgreSQL                  state.py         the demonstration's folder and lock
    processes.py child processes, and left-overs of a killed demonstration
"""
