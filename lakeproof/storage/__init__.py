"""Files and documents: the store, every path in a lake, locks, and how JSON and Parquet are written.

What a document means does not belong here, nor what Spark and Delta write themselves (`lakeproof.lake.delta`).

    source_lake.py      a lake's store, with the keys of one source
    store.py            the interface             open.py     a store by its URL
    local.py            the store in a folder     disk.py     errors of a disk, as ours
    paths.py            every key                 locks.py    flock: exclusive, shared, probe
    document.py         JSON documents            times.py    the one spelling of a time
    parquet.py          our own Parquet files
"""
