"""Object stores: the store of a bucket, its requests and errors, its locks and its probe.

The folder's store does not belong here (`lakeproof.storage.local`), nor the interface of both.
"""
