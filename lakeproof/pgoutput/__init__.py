"""pgoutput: bytes of PostgreSQL's logical replication to messages, and batches of them to Arrow columns.

No socket, file or clock belongs here; the stream that brings the bytes is `lakeproof.postgres.replication_stream`.

    messages.py               every message as a value         tags.py         what a tag alone says
    decoder.py                one message, exactly             relations.py    which schema is in force
    message_buffer.py         a batch as one buffer            rows.py         the columns that come out
    transaction_positions.py  transactions, positions, seqs    controls.py     schemas, truncates, logical messages
    batch.py                  a batch, by column               table_rows.py   one table's rows of a batch
    tuples.py                 the values of the tuples         warm_up.py      loads the compiled loops

The slow twin of `batch.py`, which reads one message at a time, is the tests' oracle:
tests/core/pgoutput/pgoutput_reference.py.
"""

__all__ = ["batch", "decoder", "message_buffer", "messages", "relations", "rows", "tags", "warm_up"]
