"""pgoutput: bytes of PostgreSQL's logical replication to messages, and batches of them to Arrow columns.

No socket, file or clock belongs here; the stream that brings the bytes is `lakeproof.postgres.replication_stream`.

    messages.py   what can arrive                 decoder.py   one message, exactly
    relations.py  which shape is in force         rows.py      the columns that come out
    wire.py       a batch as one buffer           places.py    transactions, positions, seqs
    controls.py   shapes, truncates, messages     tuples.py    values, column by column
    batch.py      the fast road                   assemble.py  the slow one, its oracle
"""
