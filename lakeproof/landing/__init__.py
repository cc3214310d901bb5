"""The landing: Parquet segments and the chain of manifests that makes them visible. FORMAT.md is its format.

Nothing here talks to PostgreSQL or needs Spark; files and folders of any kind are `lakeproof.storage`.

    manifest.py            one element of the chain         chain.py             reads and extends the chain
    segment.py             writes a segment                 logical_messages.py  writes its logical messages
    row_file.py            writes a file of its rows        writer_thread.py     the thread that does that
    reader.py              finds and verifies files         decoded_size.py      what a file's rows take in memory
    catalog_record.py      a reading of the catalog         catalog_history.py   the chain's readings
    incarnation_record.py  an incarnation about to begin    timelines.py         the server's later timelines
    retention.py           removes old manifests            chain_start.py       where the chain begins then
    sweep.py               removes files nobody names       inspect.py           shows a file to a person
    ownership.py           whose lake this is             row_order.py          the ordinals of rows
    row_sums.py            the sum of a file's rows       row_tags.py           the tags in their hashes
    file_columns.py        the columns of landed files      file_ends.py         finishes files, several at a time
    decoded.py             the number of `decoded_size.py`, in documents
    missing.py             the errors where there is no landing
"""

__all__ = [
    "catalog_history",
    "catalog_record",
    "chain",
    "incarnation_record",
    "inspect",
    "missing",
    "ownership",
    "retention",
    "segments",
    "stuck",
    "sweep",
    "timelines",
]
