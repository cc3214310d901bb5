"""Metrics: what a drain, a compaction or a command shows to Prometheus, and whether a process is ready. No Spark.

The work does not belong here, and knows nothing of this room: what it reports anyway is counted (`Event`, `Flush`, cuts),
its state is read at a scrape, and nothing that goes wrong here ends it.

    definitions.py   every metric: name, type, labels, meaning
    observed.py      puts metrics around a drain or a follower
    drain_state.py   what a drain does, its pulse, its slot    follow_state.py  what a follower does
    lake_state.py    a source's lake                           server.py        /metrics, /healthz, /readyz
    samples.py       a registry in Prometheus' form, and readings at a scrape: cached, limited
"""

__all__ = ["observed"]
