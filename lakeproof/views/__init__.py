"""Views: SQL over current tables, kept as Delta tables by writing what differs and nothing more.

Which views there are and when they are refreshed belongs to `lakeproof.commands.refresh` and its callers.
"""
