"""The steps a person or Dagster calls: one function per command, over the engine's rooms.

No step parses arguments or prints; that belongs to `wal2delta.cli` and to the assets.
"""
