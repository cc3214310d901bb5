"""What stands in the way of replicating a source: each check reads the catalog and returns findings with their remedies.

Nothing here changes the server, and nothing decides whether a command goes on.
"""
