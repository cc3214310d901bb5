"""A Delta table's data files and deletion vectors: written, linked, described, put together and removed.

No module here makes a version: the commit belongs to `lakeproof.lake.delta.committer`.
"""
