"""The source's side: connections, server, slot, catalog, snapshot, stream, and the checks of all of them.

Decoding messages (`lakeproof.pgoutput`), typing values (`lakeproof.values`) and writing files do not belong here: nothing in
this room touches a file.

    server.py              which server, timeline, database
    connections/           connections, and the channel of a COPY
    replication_slot.py    state, create, drop
    replication_stream.py  messages in, status out
    copying/               a snapshot, and COPY under it
    catalog/               tables, types and publications
    publications.py        the catalog's lines of a publication, and the way out of one
    checks/                what is wrong with a source
"""
