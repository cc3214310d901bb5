"""Views: SQL over current tables, kept as Delta tables by writing what differs and nothing more.

Which views there are and when they are refreshed belongs to `wal2delta.pipeline.refresh` and its callers.
"""
