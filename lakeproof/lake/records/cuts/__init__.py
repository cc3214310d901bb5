"""Cuts of a source and of groups: their documents, the choice of one, and ranges of them.

Cuts of views do not belong here (`lakeproof.lake.records.views`).

    documents.py  a cut in its stored form: a difference, its base, and the tables' schemas
    choice.py     the cuts at which a reader opens a lake, and those of a range
    groups.py     the cuts of a group
"""
