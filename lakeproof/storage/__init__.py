"""Files and documents: the store, every path in a lake, locks, and how JSON and Parquet are written.

The meaning of documents belongs to the rooms that write them, the files of Spark and Delta to `lakeproof.lake.delta`.

    source_lake.py  a lake's store, with the keys of one source
    store.py        the interface
    open.py         a store by its URL
    local.py        the store in a folder
    local_files.py  files in a folder that others write, too
    object/         the store in S3, GCS or Azure
    paths.py        every key
    folder.py       a folder in a store, by names
    locks.py        flock: exclusive, shared, probe
    disk.py         errors of a disk, as ours
    document.py     JSON documents
    parquet.py      our own Parquet files
    times.py        the one spelling of a time
"""

__all__ = ["disk", "document", "folder", "object", "open", "parquet", "paths", "source_lake", "store", "times"]
