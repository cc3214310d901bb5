"""Benchmarks of drain and copy.

drain.py           a drain, against pg_recvlogical
latency.py         commit to durable segment
decoder.py         pgoutput to Arrow, by kind of column
bounds.py          peak memory of a drain
tls.py             drain and copy over TLS
object_store.py    a drain to an object store, beside a folder
object_server.py   such a store, with a delay for each request
bootstrap.py       a first copy, against bare COPY and other tools
snapshot_peers.py  those tools, in their own environment
unchanged.py       unchanged large values
"""
