"""Cuts of a source and of groups: their documents, the choice of one, and ranges of them.

Cuts of views do not belong here (`lakeproof.lake.records.views`).
"""
