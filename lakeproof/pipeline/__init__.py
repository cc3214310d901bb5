"""The steps a person or Dagster calls: one function per command, over the engine's rooms.

No step parses arguments or prints; that belongs to `lakeproof.cli` and to the assets.
"""
