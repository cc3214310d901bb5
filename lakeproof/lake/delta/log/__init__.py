"""A Delta table's log: its commits, the state that they add up to, its checkpoints and its protocol.

Writing a version does not belong here (`lakeproof.lake.delta.committer`).
"""
