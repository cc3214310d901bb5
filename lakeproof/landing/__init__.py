"""The landing: Parquet segments and the chain of manifests that makes them visible. FORMAT.md is its format.

Nothing here talks to PostgreSQL or needs Spark; files and folders of any kind are `lakeproof.storage`.

    chain.py               reads and extends the chain
    kept_manifests.py      what it has read, for a while
    segments/              one element of the chain: its manifest and files
    logical_messages.py    writes a segment's logical messages
    catalog_record.py      a reading of the catalog
    catalog_history.py     the chain's readings
    incarnation_record.py  an incarnation about to begin
    timelines.py           the server's later timelines
    retention.py           removes old manifests
    chain_start.py         where the chain begins then
    sweep.py               removes files nobody names
    inspect.py             shows a file to a person
    stuck.py               where the server can't send on
    missing.py             the errors where there is no landing
"""

__all__ = [
    "catalog_history",
    "catalog_record",
    "chain",
    "incarnation_record",
    "inspect",
    "missing",
    "retention",
    "segments",
    "stuck",
    "sweep",
    "timelines",
]
