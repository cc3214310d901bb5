"""Tables that get another schema in a cycle: their commits, their rows, and the record of the change.

Whether a change can be made in place is decided in `lakeproof.lake.planning`, not here.
"""
