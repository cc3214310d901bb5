"""The source's side: connections, server, slot, catalog, snapshot, stream, and the checks of all of them.

Decoding messages (`lakeproof.pgoutput`), typing values (`lakeproof.values`) and writing files do not belong here: nothing in
this room touches a file.

    server.py              which server, timeline, database
    connections/           connections, and the channel of a COPY
    replication_slot.py    state, create, drop
    replication_start.py   options, checks before a start
    replication_stream.py  messages in, status out
    copying/               a snapshot, and COPY under it
    sent_rows.py           the rows of a table that its publication sends
    catalog/               tables, types and publications
    publication_lines.py   the catalog's lines of a publication
    publication_ways.py    how a publication comes to have a table
    role_grants.py         what a role may do
    checks/                what is wrong with a source
"""
