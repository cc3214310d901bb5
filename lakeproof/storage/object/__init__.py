"""Object stores: the store of a bucket, its requests and errors, its locks and its probe.

The folder's store does not belong here (`lakeproof.storage.local`), nor the interface of both.

    store.py        the store in S3, GCS or Azure
    client.py       obstore's clients, and the credentials of a profile
    files.py        large files, in parts and ranges
    requests.py     counting and repeating
    lock.py         locks by compare-and-swap
    errors.py       a store's answers, as our errors
    probe.py        what is tried before the first write
"""
