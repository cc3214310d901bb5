"""The source's side: connections, server, slot, catalog, snapshot, stream, and the checks of all of them.

Decoding messages (`lakeproof.pgoutput`), typing values (`lakeproof.values`) and writing files do not belong here: nothing in
this room touches a file.

    server.py                    which server, timeline, database
    connection.py                open, pin settings, turn errors into ours
    connection_timeouts.py       limits on every wait               connection_security.py   TLS and authentication
    connection_channel.py        the messages of a COPY             connection_framing.py    their places, compiled
    connection_transport.py      the socket past libpq              connection_libpq.py      libpq below psycopg
    connection_protocol.py       a COPY's interface
    replication_slot.py          state, create, drop                replication_start.py     options, checks before a start
    replication_stream.py        messages in, status out
    copy_snapshot.py             a snapshot exact at an LSN         copy_blocks.py           COPY to Arrow batches
    copy_text.py                 COPY's text format, compiled       copy_cost.py             what a snapshot costs
    copy_keys.py                 the rows of single keys
    catalog_published.py         publications and their tables      catalog_tables.py        one published table, as a value
    catalog_queries.py           the SQL of both                    catalog_unpublished.py   columns that are not sent
    catalog_locks.py             who locks a published table        catalog_selection.py     names and patterns
    catalog_fingerprint.py       read the fingerprint               catalog_origins.py        where a table came from
    catalog_relations.py         a Relation message's version       catalog_type_lines.py    a type as text
    catalog_unchanged.py         a table since its snapshot         catalog_descriptions.py  comments and full types
    check_source.py              server, role, slot, publication    check_tables.py          single tables
    check_findings.py            findings as values                 check_privileges.py      what a role lacks
"""
