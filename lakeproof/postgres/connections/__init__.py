"""Connections to a server: the usual ones, and the channel that a replication stream is read from.

The statements belong to the callers.

    connect.py    open, pin settings, turn errors into ours
    timeouts.py   limits on every wait
    security.py   TLS and authentication
    refusals.py   what a server answers in place of a connection
    pooler.py     whether a pooler stands in between
    channel.py    the messages of a COPY
    framing.py    their places, compiled
    protocol.py   a COPY's interface
    libpq.py      libpq below psycopg
"""
