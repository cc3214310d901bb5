"""Files and documents: the store, every path in a lake, locks, and how JSON and Parquet are written.

What a document means does not belong here, nor what Spark and Delta write themselves (`lakeproof.lake.delta`).

    source_lake.py      a lake's store, with the keys of one source
    store.py            the interface             open.py     a store by its URL
    local.py            the store in a folder     disk.py     errors of a disk, as ours
    paths.py            every key                 locks.py    flock: exclusive, shared, probe
    document.py         JSON documents            times.py    the one spelling of a time
    parquet.py          our own Parquet files     folder.py   a folder in a store, by names
    local_files.py      files in a folder that others write, too

    object_store.py     the store in S3, GCS or Azure                object_client.py    obstore's clients; aws_profile.py
    object_files.py     large files, in parts and ranges             object_requests.py  counting and repeating
    object_lock.py      locks by compare-and-swap                    object_errors.py    a store's answers, as our errors
    object_probe.py     what is tried before the first write
"""

__all__ = ["disk", "document", "folder", "object", "open", "parquet", "paths", "source_lake", "store", "times"]
