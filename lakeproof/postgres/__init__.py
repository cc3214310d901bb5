"""The source's side: connections, server, slot, catalog, snapshot, stream and the checks of all of them.

What the messages mean belongs to `lakeproof.pgoutput`, how a value is typed to `lakeproof.values`, and where rows go to
`lakeproof.landing`; nothing in this room touches a file.
"""
