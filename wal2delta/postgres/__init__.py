"""The source's side: connections, server, slot, catalog, snapshot, stream and the checks of all of them.

What the messages mean belongs to `wal2delta.pgoutput`, how a value is typed to `wal2delta.values`, and where rows go to
`wal2delta.landing`; nothing in this room touches a file.
"""
