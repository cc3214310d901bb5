"""The source's side of a proof: its SQL, read under the proof's snapshot.

The comparison with the lake does not belong here (`lakeproof.proof.compare`).

    form.py    a row's text as SQL for PostgreSQL
    side.py    reading the source
    read.py    all tables, small ones together
    unsent.py  differences that unsent changes explain
"""
