"""pgoutput: bytes of PostgreSQL's logical replication to messages, and batches of them to Arrow columns.

No socket, file or clock belongs here; the stream that brings the bytes is `wal2delta.postgres.stream`.

    messages.py   what can arrive          decoder.py   one message, exactly
    relations.py  which shape is in force  rows.py      the columns that come out
    wire.py       a batch as one buffer    tuples.py    its tuples, column by column
    places.py     transactions and seqs    assembly.py  texts to typed record batches
    batch.py      the fast road            assemble.py  the slow one, its oracle
"""
